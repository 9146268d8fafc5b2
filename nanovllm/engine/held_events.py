"""Events that wait for what they lack: a token, a reason, a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from nanovllm.trace.events import (
    AnyEvent,
    Emit,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
)

_TIMED = (RequestAdded, RequestRejected, RequestFinished, StepStarted, StepFinished)


class HeldEvents:
    """Passes events on to ``emit``, or holds them back, from ``hold`` until ``release``. Their order stays."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._held: deque[AnyEvent] = deque()
        self._is_holding = False

    def take(self, event: AnyEvent) -> None:
        """The listener that the engine's parts emit to."""
        if self._is_holding:
            self._held.append(event)
        else:
            self._emit(event)

    def hold(self) -> None:
        """Hold back all that comes from now on."""
        self._is_holding = True

    def release(
        self,
        time_s: float,
        tokens: Mapping[RequestId, int],
        reasons: Mapping[RequestId, str],
        host_s: float | None = None,
        device_s: float | None = None,
    ) -> None:
        """Complete the held events and pass them on.

        ``tokens``: what was sampled for each request. ``reasons``: why requests ended. ``time_s``: when the step in
        which holding began was over. What was decided ahead of time counts as done then: an earlier time becomes this.
        ``host_s``, ``device_s``: of that step; no other is finished meanwhile.
        """
        while self._held:
            event = self._held.popleft()
            if isinstance(event, TokensAppended):
                event = TokensAppended(event.requests, [tokens[request] for request in event.requests])
            elif isinstance(event, _TIMED):
                if isinstance(event, RequestFinished):
                    event = RequestFinished(event.request, event.time, reasons.get(event.request, event.reason))
                elif isinstance(event, StepFinished):
                    event = StepFinished(event.step, event.time, event.phase, event.tokens, host_s, device_s)
                if event.time < time_s:
                    event = msgspec.structs.replace(event, time=time_s)
                time_s = event.time
            self._emit(event)
        self._is_holding = False
