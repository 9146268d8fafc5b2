"""A request on its way through the engine, and the output that becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import NanoVllmError, RequestError
from nanovllm.llm.detokenizer import TextDecoder
from nanovllm.llm.outputs import RequestMetrics, RequestOutput
from nanovllm.llm.text_stream import TextStream


@dataclass(slots=True, kw_only=True)
class LiveRequest:
    """What the engine's sequence does not know about a request: its text and its times."""

    sequence: Sequence
    prompt: str | None
    text: TextStream | None
    """None: nobody needs the text before the end."""
    arrival_s: float
    scheduled_s: float | None = None
    first_token_s: float | None = None
    is_wanted: bool = True
    """Whether anyone waits for the output."""

    def note_step(self, started_s: float, finished_s: float) -> None:
        """A step that scheduled the request is over."""
        if self.scheduled_s is None:
            self.scheduled_s = started_s
        if self.first_token_s is None and self.sequence.num_completion_tokens:
            self.first_token_s = finished_s

    def to_output(self, decoder: TextDecoder, finished_s: float, error: NanoVllmError | None) -> RequestOutput:
        """The output, once the sequence has ended."""
        seq = self.sequence
        assert seq.finish_reason is not None, f"{seq!r} has not ended"
        token_ids = seq.completion_token_ids
        end_token = _end_token(seq)
        if self.text is None:
            text = decoder.decode(token_ids if end_token is None else token_ids[:-1])
        else:
            text = self.text.finish()
        return RequestOutput(
            request_id=seq.request_id,
            prompt=self.prompt,
            prompt_token_ids=seq.prompt_token_ids,
            text=text,
            token_ids=token_ids,
            finish_reason=seq.finish_reason,
            stop_reason=self._stop_reason(end_token),
            error=error,
            metrics=RequestMetrics(
                arrival_s=self.arrival_s,
                scheduled_s=self.scheduled_s,
                first_token_s=self.first_token_s,
                finished_s=finished_s,
                num_prompt_tokens=seq.num_prompt_tokens,
                num_completion_tokens=len(token_ids),
                num_cached_tokens=seq.num_prefix_hit_tokens,
                num_preemptions=seq.num_preemptions,
            ),
        )

    def _stop_reason(self, end_token: int | None) -> str | int | None:
        if self.sequence.finish_reason != "stop":
            return None
        return end_token if end_token is not None or self.text is None else self.text.stop


def _end_token(seq: Sequence) -> int | None:
    """The token that ended the sequence and is no part of its text, if a token did."""
    ended_by_token = seq.finish_reason in ("eos", "stop") and seq.last_token in seq.end_token_ids
    return seq.last_token if ended_by_token else None


def rejected_output(request: Request, prompt: str | None, time_s: float, error: RequestError) -> RequestOutput:
    """The output of a request that was refused at ``time_s``."""
    return RequestOutput(
        request_id=request.request_id,
        prompt=prompt,
        prompt_token_ids=list(request.prompt_token_ids),
        text="",
        token_ids=[],
        finish_reason="rejected",
        error=error,
        metrics=RequestMetrics(arrival_s=time_s, finished_s=time_s, num_prompt_tokens=len(request.prompt_token_ids)),
    )
