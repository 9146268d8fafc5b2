"""What a router knows of a replica: what was sent there, and what has come back."""

from __future__ import annotations

from math import inf

from nanovllm.engine.request import Request
from nanovllm.engine.steps import StepResult
from nanovllm.trace.events import RequestId


class ReplicaView:
    """A replica as it looks from outside, through the answers that it streams.

    That is all that a router in front of real servers can count by itself. It sees no block and no queue: a prompt
    counts until the first token comes, an answer as long as it may get until it ends.
    """

    def __init__(self) -> None:
        self.waiting_prompt_tokens = 0
        """Prompt tokens to be computed before the requests without a token get their first, without those that the
        router expects to be cached."""
        self.promised_output_tokens = 0
        """The most that the requests which have not ended may generate: the sum of their ``max_tokens``."""
        self.last_sent_s = -inf
        """When a request was last sent there; minus infinity: never."""
        self._waiting: dict[RequestId, int] = {}
        self._promised: dict[RequestId, int] = {}

    @property
    def num_waiting(self) -> int:
        """Requests that got no token yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that got a token and have not ended."""
        return len(self._promised) - len(self._waiting)

    @property
    def num_outstanding(self) -> int:
        """Requests that have not ended."""
        return len(self._promised)

    @property
    def outstanding_tokens(self) -> int:
        """Work that is not known to be done: prompt tokens before first tokens, and answers at their longest."""
        return self.waiting_prompt_tokens + self.promised_output_tokens

    def note_sent(self, request: Request, time_s: float, num_cached_tokens: int) -> None:
        """A request is on its way there; so many tokens of its prompt are expected to be cached."""
        self.last_sent_s = time_s
        if request.request_id in self._promised:
            return  # the replica will refuse it, unless the one that is called so has ended by then
        prompt_tokens = len(request.prompt_token_ids) - num_cached_tokens
        self._waiting[request.request_id] = prompt_tokens
        self.waiting_prompt_tokens += prompt_tokens
        self._promised[request.request_id] = request.sampling_params.max_tokens
        self.promised_output_tokens += request.sampling_params.max_tokens

    def note_result(self, result: StepResult) -> None:
        """The tokens of a step have come back, and some answers with them have ended."""
        if self._waiting and result.batch.is_prefill:
            for seq in result.batch.sequences:
                if seq.num_completion_tokens:
                    self._note_first_token(seq.request_id)
        for seq in result.finished:
            self.note_end(seq.request_id)

    def note_end(self, request_id: RequestId) -> None:
        """A request has ended, or was refused."""
        self._note_first_token(request_id)
        self.promised_output_tokens -= self._promised.pop(request_id, 0)

    def _note_first_token(self, request_id: RequestId) -> None:
        self.waiting_prompt_tokens -= self._waiting.pop(request_id, 0)
