"""The engine with what its users see: each request's text and times, and its output when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from nanovllm.config import Config
from nanovllm.engine.backend import Backend
from nanovllm.engine.clock import Clock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.engine.steps import StepResult
from nanovllm.errors import NanoVllmError, RequestError, UserError
from nanovllm.interrupts import uninterrupted
from nanovllm.llm.detokenizer import TextDecoder
from nanovllm.llm.live_request import LiveRequest, rejected_output
from nanovllm.llm.outputs import RequestOutput
from nanovllm.llm.text_stream import TextStream
from nanovllm.llm.tokenizer import Tokenizer
from nanovllm.trace.events import Emit, RequestId


class TextEngine(Engine):
    """An engine that turns what it did for a request into a ``RequestOutput``.

    Whoever calls ``step`` or ``turn`` moves all requests; the output of one that has ended waits in ``outputs`` until
    it is taken. So several callers may share an engine, from several threads too: ``lock`` is held while anything
    changes.
    """

    def __init__(
        self,
        config: Config,
        backend: Backend,
        tokenizer: Tokenizer,
        *,
        clock: Clock | None = None,
        emit: Emit | None = None,
        vocab_size: int | None = None,
    ) -> None:
        super().__init__(config, backend, clock=clock, emit=emit, vocab_size=vocab_size)
        self.decoder = TextDecoder(tokenizer)
        self.lock = threading.RLock()
        self.live: dict[RequestId, LiveRequest] = {}
        """The requests that have not ended."""
        self.outputs: dict[RequestId, RequestOutput] = {}
        """Outputs that nobody has taken yet."""
        self._num_numbered = 0
        self._is_turning = False
        self._aborted_in_turn: list[RequestId] = []
        self._is_closed = False

    def new_request_id(self) -> int:
        """An id that no request of this engine has had."""
        with self.lock:
            self._num_numbered += 1
            return self._num_numbered - 1

    # ---- requests --------------------------------------------------------------------------------------------

    def add(self, request: Request, *, prompt: str | None = None, streaming: bool = False) -> Sequence:
        """See ``Engine.add``; the output of a request that is refused is there at once.

        ``prompt``: the text that the token ids stand for. ``streaming``: decode each token as it comes.
        """
        if self._is_closed:
            raise UserError("the engine is closed: it takes no requests any more")
        stops = request.sampling_params.stop
        text = TextStream(self.decoder, stops) if streaming or stops else None
        with self.lock:
            if isinstance(request.request_id, int):
                self._num_numbered = max(self._num_numbered, request.request_id + 1)
            now_s = self.clock.now()
            try:
                sequence = super().add(request if text is None else _with_text(request, text))
            except RequestError as error:
                if error.reason != "duplicate_id":  # the output under this id belongs to the other one
                    self.outputs[request.request_id] = rejected_output(request, prompt, now_s, error)
                raise
            arrival_s = request.arrival_s if request.arrival_step is None else now_s
            self.live[request.request_id] = LiveRequest(
                sequence=sequence, prompt=prompt, text=text, arrival_s=arrival_s
            )
            return sequence

    def abort(self, request_id: RequestId) -> bool:
        """See ``Engine.abort``. During a turn, another thread waits for its end; a listener that is called within
        the turn only makes a note for its end."""
        with self.lock:
            if self._is_turning:
                self._aborted_in_turn.append(request_id)
                return request_id in self.live
            was_there = super().abort(request_id)
            if was_there:
                self._deliver(request_id, self.clock.now())
            return was_there

    def withdraw(self, request_ids: Iterable[RequestId]) -> None:
        """Abort those of these requests that have not ended; nobody wants the output of any of them."""
        with self.lock:
            for request_id in request_ids:
                if request_id in self.live:
                    self.live[request_id].is_wanted = False
                    self.abort(request_id)
                self.outputs.pop(request_id, None)

    def take(self, request_ids: Iterable[RequestId]) -> list[RequestOutput]:
        """Those of the outputs of these requests that are there, in this order."""
        with self.lock:
            return [self.outputs.pop(request_id) for request_id in request_ids if request_id in self.outputs]

    # ---- steps -----------------------------------------------------------------------------------------------

    def turn_if_busy(self, arrivals: Iterable[Request]) -> StepResult | None:
        """See ``Engine.turn_if_busy``. If the engine is found idle, nobody is in the middle of a turn: whoever waits
        for an end has heard of it."""
        with self.lock:
            return super().turn_if_busy(arrivals)

    def turn(self, arrivals: Iterable[Request] = ()) -> StepResult | None:
        """See ``Engine.turn``. A Ctrl-C waits until the turn is complete."""
        with self.lock, uninterrupted():
            self._is_turning = True
            try:
                result = super().turn(arrivals)
            finally:
                self._is_turning = False
            if result is not None:
                self._take_result(result)
            aborted, self._aborted_in_turn = self._aborted_in_turn, []
            for request_id in aborted:
                self.abort(request_id)
            return result

    def settle(self) -> None:
        """See ``Engine.settle``."""
        with self.lock:
            if not self._is_turning:
                super().settle()

    def _take_result(self, result: StepResult) -> None:
        if result.batch.phase != "decode":
            for seq in result.batch.sequences:
                live = self.live.get(seq.request_id)
                if live is not None and live.sequence is seq:  # not aborted while the step was in flight
                    live.note_step(result.started_s, result.finished_s)
        for seq in result.finished:
            self._deliver(seq.request_id, result.finished_s, result.error)

    def _deliver(self, request_id: RequestId, time_s: float, error: NanoVllmError | None = None) -> None:
        live = self.live.pop(request_id)
        if live.is_wanted:
            self.outputs[request_id] = live.to_output(self.decoder, time_s, error)

    def close(self) -> None:
        """See ``Engine.close``."""
        self._is_closed = True
        super().close()


def _with_text(request: Request, text: TextStream) -> Request:
    """The request, feeding ``text`` with each token that does not end it by itself, and ending with the text."""
    ends_otherwise = request.stop_condition

    def ends(seq: Sequence) -> bool:
        return text.push(seq.last_token) or (ends_otherwise is not None and ends_otherwise(seq))

    return msgspec.structs.replace(request, stop_condition=ends)
