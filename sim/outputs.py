"""What simulated requests answer: drawn tokens, or those of a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from nanovllm.checks import MAX_TOKEN_ID, is_whole_number
from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import RequestError, TraceError, shown
from nanovllm.trace.events import (
    AnyEvent,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.replay import Replay
from sim.token_ids import DEFAULT_VOCAB_SIZE, answer_token_ids


class Outputs(Protocol):
    """The answers, known to the simulated backend and to nobody else."""

    def token_ids(self, seq: Sequence) -> list[int]:
        """All tokens that ``seq`` generates until it ends, or until something outside ends it."""
        ...


class DrawnOutputs:
    """Answers that depend on the request's id alone, of a length that may be laid down beforehand.

    None of the tokens ends the request, except the last one of an answer whose length was laid down: that is an
    end-of-sequence token. The scheduler learns of it when it is "sampled", as from a real model.
    """

    def __init__(self, eos_token_ids: Iterable[int] = (), vocab_size: int = DEFAULT_VOCAB_SIZE) -> None:
        self._eos_token_ids = frozenset(eos_token_ids)
        self._vocab_size = vocab_size
        self._lengths: dict[RequestId, int] = {}

    def set_length(self, request_id: RequestId, output_len: int) -> None:
        """Let the request of this id generate ``output_len`` tokens, fewer if its ``max_tokens`` are fewer."""
        assert self._eos_token_ids, "without an end-of-sequence token, an answer cannot end before max_tokens"
        self._lengths[request_id] = output_len

    def token_ids(self, seq: Sequence) -> list[int]:
        """See ``Outputs``."""
        output_len = self._lengths.pop(seq.request_id, None)
        ids = answer_token_ids(seq.request_id, output_len or seq.max_tokens, self._vocab_size)
        ends = seq.end_token_ids | self._eos_token_ids
        if not ends.isdisjoint(ids):
            ids = [self._next_that_ends_nothing(token, ends) for token in ids]
        if output_len is not None:
            ids[-1] = min(self._eos_token_ids)
        return ids

    def _next_that_ends_nothing(self, token: int, ends: frozenset[int]) -> int:
        return next(other for other in range(token, token + len(ends) + 1) if other not in ends)


class RecordedOutputs:
    """The answers of a recorded run, on whatever backend: a simulation of the same workload with the same options
    then makes the same decisions, up to the ends of the requests.

    Requests that were aborted are aborted after the same step. Raises ``TraceError`` if the trace contradicts itself,
    does not tell how a request ended, or if one failed: a failed step cannot be repeated.
    """

    def __init__(
        self, events: Iterable[AnyEvent], path: object = "the recorded run", *, has_prompts_made_up: bool = False
    ) -> None:
        """``path``: how errors name the trace. ``has_prompts_made_up``: the prompts that will be simulated stand for
        those of the run, and hold ids that the model need not know."""
        self.has_prompts_made_up = has_prompts_made_up
        self.eos_token_ids: tuple[int, ...] = ()
        self._max_model_len = -1
        self._tokens: dict[RequestId, list[int]] = {}
        self._reasons: dict[RequestId, str] = {}
        self._aborted: dict[int, list[RequestId]] = {}
        self._path = path
        self._read(events)
        for request_id in self._tokens:
            if self._reasons.get(request_id) in (None, "error"):
                how = "failed" if request_id in self._reasons else "did not end (the trace is cut short)"
                raise TraceError(path, f"request {request_id!r} {how}: only a run that came to its end can be repeated")

    def _read(self, events: Iterable[AnyEvent]) -> None:
        step, replay = 0, Replay(self._path)
        for line, event in enumerate(events, start=1):
            replay.apply(event)
            if isinstance(event, TokensAppended):
                for request_id, token in zip(event.requests, event.tokens, strict=True):
                    if not is_whole_number(token, 0, MAX_TOKEN_ID):
                        raise TraceError(self._path, f"request {request_id!r} got {token}, which is no token id", line)
                    self._tokens[request_id].append(token)
            elif isinstance(event, RequestAdded):
                if event.request in self._tokens:
                    problem = f"two requests are called {event.request!r}: answers are told by id"
                    raise TraceError(self._path, problem, line)
                self._tokens[event.request] = []
            elif isinstance(event, RequestFinished):
                self._reasons[event.request] = event.reason
                if event.reason == "aborted":
                    self._aborted.setdefault(step, []).append(event.request)
            elif isinstance(event, StepFinished):
                step = event.step
            elif isinstance(event, TraceStarted):
                self.eos_token_ids = self._eos_of(event.config.get("eos", []))
                self._max_model_len = event.config.get("max_model_len", -1)

    def _eos_of(self, told: object) -> tuple[int, ...]:
        ids = told if isinstance(told, list) else [told]
        if not all(is_whole_number(token, 0, MAX_TOKEN_ID) for token in ids):
            raise TraceError(self._path, f"config.eos is {shown(told)}: a list of token ids is needed", 1)
        return tuple(ids)

    def choose_options(self, config: Config) -> Config:
        """``config`` with what decided about the recorded answers: its end-of-sequence ids, and its ``max_model_len``
        unless another is chosen."""
        config = replace(config, eos=self.eos_token_ids or -1)
        return config if config.max_model_len != -1 else replace(config, max_model_len=self._max_model_len)

    def token_ids(self, seq: Sequence) -> list[int]:
        """See ``Outputs``. Raises ``RequestError`` for a request that the recorded run did not have, or that it let
        end earlier than this one may."""
        if seq.request_id not in self._tokens:
            raise RequestError("not_recorded", f"request {seq.request_id!r} is not in {self._path}: no answer is known")
        ids = self._tokens[seq.request_id]
        if self._reasons[seq.request_id] == "aborted":
            # Under other options it may get further than it did before it is aborted.
            return ids + answer_token_ids(seq.request_id, seq.max_tokens)[len(ids) :]
        ends = self._reasons[seq.request_id] == "stop" or not seq.end_token_ids.isdisjoint(ids[-1:])
        if len(ids) < seq.max_tokens and not ends:
            raise RequestError(
                "not_recorded",
                f"request {seq.request_id!r} may go on to max_tokens={seq.max_tokens}, but {self._path} tells no more "
                f"than {len(ids)} tokens of its answer",
            )
        return ids

    def stop_condition(self, request_id: RequestId) -> Callable[[Sequence], bool] | None:
        """For a request that ended at a stop text: true at the same token, since nobody here reads texts."""
        if self._reasons.get(request_id) != "stop":
            return None
        num_tokens = len(self._tokens[request_id])
        return lambda seq: seq.num_completion_tokens == num_tokens

    def aborted_after(self, step: int) -> list[RequestId]:
        """The requests that were aborted between this step and the next."""
        return self._aborted.get(step, [])
