"""Random runs of the real engine, and small ones told event by event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.policies import SCHEDULERS
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, Emit, RequestId
from tests.fakes import DeferredHashBackend, HashBackend
from tests.strategies import VOCAB_SIZE, configs, workloads

Watch = Callable[[Engine, AnyEvent], None]


@dataclass(frozen=True)
class Scenario:
    """What a run does, besides what the engine decides. On a backend that takes steps early, unless
    ``config.lookahead`` is off."""

    config: Config
    requests: list[Request]
    failing_calls: list[int] = field(default_factory=list)
    aborts_before_step: dict[int, list[RequestId]] = field(default_factory=dict)
    aborts_in_call: dict[int, RequestId] = field(default_factory=dict)

    def run(
        self,
        emit: Emit | None = None,
        watch: Watch | None = None,
        after_step: Callable[[Engine], object] = lambda engine: None,
    ) -> list[AnyEvent]:
        """Run to the end; ``watch`` sees the engine right after each event but the header, ``after_step`` after each
        step."""
        events: list[AnyEvent] = []
        engine: Engine | None = None

        def listen(event: AnyEvent) -> None:
            events.append(event)
            if emit is not None:
                emit(event)
            if watch is not None and engine is not None:
                watch(engine, event)

        def abort_in_call(call: int) -> None:
            if (request_id := self.aborts_in_call.get(call)) is not None and engine is not None:
                engine.abort(request_id)

        clock = VirtualClock()
        backend = (_Backend if self.config.lookahead is False else _EarlyBackend)(self, clock, abort_in_call)
        engine = Engine(self.config, backend, clock=clock, emit=listen)
        for result in engine.run(self.requests):
            after_step(engine)
            for request_id in self.aborts_before_step.get(result.step + 1, ()):
                engine.abort(request_id)
        return events


class _Backend(HashBackend):
    """Takes a millisecond a token; ``on_call`` is called while it computes, with the number of the call."""

    def __init__(self, scenario: Scenario, clock: VirtualClock, on_call: Callable[[int], object]) -> None:
        super().__init__(
            scenario.config.num_kvcache_blocks,
            scenario.config.kvcache_block_size,
            vocab_size=VOCAB_SIZE,
            failing_calls=scenario.failing_calls,
        )
        self._clock = clock
        self._on_call = on_call

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``."""
        self._clock.advance(0.001 * batch.num_tokens)
        self._on_call(len(self.calls))
        return super().execute(batch)


class _EarlyBackend(DeferredHashBackend):
    """The same, given steps early; ``on_call`` is called while the step before is computed."""

    def __init__(self, scenario: Scenario, clock: VirtualClock, on_call: Callable[[int], object]) -> None:
        super().__init__(
            scenario.config.num_kvcache_blocks,
            scenario.config.kvcache_block_size,
            vocab_size=VOCAB_SIZE,
            failing_calls=scenario.failing_calls,
            on_submit=on_call,
            on_result=lambda call: clock.advance(0.001 * sum(num_tokens for *_, num_tokens in self.calls[call])),
        )


@st.composite
def scenarios(draw: st.DrawFn, **options: object) -> Scenario:
    """Small pools under pressure, prompts that share prefixes, aborts and failures. ``options``: as in ``configs``."""
    requests = draw(workloads())
    if draw(st.booleans()):
        requests = [msgspec.structs.replace(r, request_id=f"r{r.request_id}") for r in requests]
    numbers, names = st.integers(0, 20), st.sampled_from([request.request_id for request in requests])
    return Scenario(
        draw(configs(requests, policy=draw(st.sampled_from(sorted(SCHEDULERS))), **options)),
        requests,
        failing_calls=draw(st.lists(numbers, max_size=1)),
        aborts_before_step=draw(st.dictionaries(numbers, st.lists(names, max_size=2), max_size=2)),
        aborts_in_call=draw(st.dictionaries(numbers, names, max_size=1)),
    )


def preempting_run() -> list[AnyEvent]:
    """Two requests and a pool too small for both: request 1 is preempted in step 4 and comes back in step 9."""
    config = Config(num_kvcache_blocks=4, kvcache_block_size=4, max_num_batched_tokens=64, max_num_seqs=8)
    return Scenario(config, [request(0, range(5), 9), request(1, range(10, 14), 10)]).run()


def request(name: RequestId, prompt: Sequence[int], max_tokens: int, arrival_step: int = 0) -> Request:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request(request_id=name, prompt_token_ids=list(prompt), sampling_params=params, arrival_step=arrival_step)


def header(**options: Any) -> dict[str, Any]:
    """Options of a header's ``config``, with the usual ones filled in."""
    usual = {"block_size": 4, "num_blocks": 8, "max_num_batched_tokens": 64, "max_num_seqs": 8}
    return usual | options
