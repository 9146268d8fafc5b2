"""What comes back for a request."""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.errors import NanoVllmError
from nanovllm.trace.events import RequestId


@dataclass(frozen=True, kw_only=True)
class RequestMetrics:
    """When things happened to a request, in seconds on the engine's clock, and what it cost.

    None stands for what never happened: a rejected request is never scheduled, and so on.
    """

    arrival_s: float
    scheduled_s: float | None = None
    """When the first step began that computed some of it."""
    first_token_s: float | None = None
    """When the step ended that sampled its first token."""
    finished_s: float
    """When the step ended that finished it."""
    num_prompt_tokens: int
    num_completion_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens whose KV was in the prefix cache already."""
    num_preemptions: int = 0

    @property
    def queue_s(self) -> float | None:
        """Time from arrival until it was scheduled."""
        return None if self.scheduled_s is None else self.scheduled_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Time from arrival to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token, the first one left out; None where there is no second one."""
        if self.first_token_s is None or self.num_completion_tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.num_completion_tokens - 1)

    @property
    def e2e_s(self) -> float:
        """Time from arrival to the end."""
        return self.finished_s - self.arrival_s


@dataclass(frozen=True, kw_only=True)
class CompletionOutput:
    """A request's completion in vLLM's words: the ``outputs[0]`` of a ``RequestOutput``."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    """``stop`` (an end-of-sequence token too), ``length`` or ``abort``; ``error`` and ``rejected`` are ours."""
    stop_reason: str | int | None


_VLLM_FINISH_REASONS = {"eos": "stop", "aborted": "abort"}


@dataclass(frozen=True, kw_only=True)
class RequestOutput:
    """The result of one request.

    ``out["text"]`` and ``out["token_ids"]`` work as in nano-vLLM, ``out.outputs[0].text`` as in vLLM.
    """

    request_id: RequestId
    prompt: str | None
    """The prompt as text, for a conversation as the model saw it; None where token ids were given."""
    prompt_token_ids: list[int]
    text: str
    """The generated text: without special tokens, without the token that ended it, cut before a stop text."""
    token_ids: list[int]
    """All generated tokens, the one that ended the request included."""
    finish_reason: str
    """``eos``, ``stop``, ``length``, ``aborted``, ``error`` (a step could not be computed) or ``rejected``."""
    stop_reason: str | int | None = None
    """Of ``stop``: the stop text or the token id that ended it."""
    error: NanoVllmError | None = None
    """Of ``error`` and ``rejected``: why."""
    metrics: RequestMetrics

    @property
    def outputs(self) -> list[CompletionOutput]:
        """The completion, as vLLM has it: a list of one."""
        completion = CompletionOutput(
            index=0,
            text=self.text,
            token_ids=self.token_ids,
            finish_reason=_VLLM_FINISH_REASONS.get(self.finish_reason, self.finish_reason),
            stop_reason=self.stop_reason,
        )
        return [completion]

    def __getitem__(self, key: str) -> str | list[int]:
        if key == "text":
            return self.text
        if key == "token_ids":
            return self.token_ids
        raise KeyError(f"{key!r}: an output has the keys 'text' and 'token_ids'; all else is an attribute")


@dataclass(frozen=True, kw_only=True)
class StreamChunk:
    """What has become of one request since its last chunk. The texts of its chunks add up to its output's text, and
    so do the token ids."""

    index: int
    """Which of the prompts that were given."""
    request_id: RequestId
    text: str
    token_ids: list[int]
    output: RequestOutput | None = None
    """The whole result, with the last chunk."""

    @property
    def finish_reason(self) -> str | None:
        """Why the request ended, with its last chunk."""
        return None if self.output is None else self.output.finish_reason
