"""An engine that looks ahead, watched: what is done in which order, and at what time."""

from __future__ import annotations

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.steps import StepResult
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent
from tests.fakes import DeferredHashBackend

CONFIG = Config(kvcache_block_size=4, num_kvcache_blocks=16)


def own_prompt(name: int, length: int = 4) -> list[int]:
    return [100 * (name + 1) + position for position in range(length)]


def request(name: int, length: int = 4, max_tokens: int = 3, *, arrival_step: int = 0, **params: object) -> Request:
    chosen = SamplingParams(max_tokens=max_tokens, **params)
    return Request(
        request_id=name, prompt_token_ids=own_prompt(name, length), sampling_params=chosen, arrival_step=arrival_step
    )


class Watched:
    """An engine on a backend that takes a millisecond a token, and what happens to both in one list."""

    def __init__(self, config: Config = CONFIG, **options: object) -> None:
        self.work: list[str] = []
        self.events: list[AnyEvent] = []
        self.clock = VirtualClock()
        self.backend = DeferredHashBackend(
            config.num_kvcache_blocks,
            config.kvcache_block_size,
            on_submit=lambda call: self.work.append(f"submit {call}"),
            on_result=self._compute,
            **options,
        )
        self.engine = Engine(config, self.backend, clock=self.clock, emit=self.events.append)

    def _compute(self, call: int) -> None:
        self.work.append(f"result {call}")
        self.clock.advance(0.001 * sum(num_tokens for *_, num_tokens in self.backend.calls[call]))

    def run(self, *requests: Request) -> list[StepResult]:
        return list(self.engine.run(requests))

    def told(self, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kinds)]
