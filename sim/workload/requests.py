"""From a workload to what an engine takes: prompts get their token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nanovllm.checks import check_whole_number
from nanovllm.engine.request import Request
from nanovllm.errors import ConfigError
from sim.token_ids import DEFAULT_VOCAB_SIZE, own_tokens, prefix_tokens
from sim.workload.request import WorkloadRequest

Tokenize = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Gives each request its prompt. Equal arguments, equal prompts, on every backend. Raises ``ConfigError``."""

    seed: int = 0
    vocab_size: int = DEFAULT_VOCAB_SIZE
    """Ids are drawn from below this number; no smaller than 2."""
    tokenize: Tokenize | None = None
    """Makes token ids of ``text``. Without it, such a request raises ``ConfigError``."""

    def __post_init__(self) -> None:
        check_whole_number("vocab_size", self.vocab_size, 2)

    def token_ids(self, request: WorkloadRequest, index: int) -> Sequence[int]:
        """The prompt of ``request``, which is number ``index`` of its workload."""
        if request.prompt is not None:
            return request.prompt
        if request.text is not None:
            if self.tokenize is None:
                raise ConfigError("text", request.text, "there is no tokenizer here, give prompt or prompt_len")
            return self.tokenize(request.text)
        assert request.prompt_len is not None, f"request {request.id!r} was made without a prompt"
        if request.prefix is None or not request.prefix_len:
            return own_tokens(index, request.prompt_len, self.seed, self.vocab_size)
        shared = prefix_tokens(request.prefix, request.prefix_len, self.seed, self.vocab_size)
        return shared + own_tokens(index, request.prompt_len - request.prefix_len, self.seed, self.vocab_size)


def to_requests(workload: Iterable[WorkloadRequest], prompts: Prompts | None = None) -> Iterator[Request]:
    """The requests of a workload as the engine takes them, one by one."""
    prompts = Prompts() if prompts is None else prompts
    for index, request in enumerate(workload):
        yield Request(
            request_id=request.id,
            prompt_token_ids=prompts.token_ids(request, index),
            sampling_params=request.sampling_params(),
            arrival_s=request.arrival or 0.0,
            arrival_step=request.arrival_step,
            after=request.after,
            delay_s=request.delay,
            priority=request.priority,
        )
