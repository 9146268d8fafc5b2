"""What comes into an engine: a prompt, how to sample, and when it arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence as TokenIds

import msgspec

from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import RequestId


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a workload.

    ``arrival_s`` counts from the start of the run. With ``arrival_step`` the request is handed over before that
    step instead, whatever the time: runs on different backends then see it at the same place. With ``after`` it
    arrives ``delay_s`` seconds after the last of these requests has ended, however they end: see ``arrivals``.
    """

    request_id: RequestId
    prompt_token_ids: TokenIds[int]
    sampling_params: SamplingParams
    arrival_s: float = 0.0
    arrival_step: int | None = None
    after: tuple[RequestId, ...] = ()
    delay_s: float = 0.0
    stop_condition: Callable[[Sequence], bool] | None = None
    """See ``Sequence``."""
    priority: int = 0
    """For the policy ``priority``: the lower, the earlier. The others take no notice of it."""

    def to_sequence(self) -> Sequence:
        """A fresh sequence for the scheduler. Raises ``RequestError`` for an unusable prompt."""
        return Sequence(
            self.prompt_token_ids, self.sampling_params, self.request_id, self.stop_condition, self.priority
        )
