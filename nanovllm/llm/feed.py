"""What the consumer of a stream gets of one request, chunk by chunk."""

from __future__ import annotations

from nanovllm.llm.outputs import StreamChunk
from nanovllm.llm.text_engine import TextEngine
from nanovllm.trace.events import RequestId


class Feed:
    """Remembers how much of a request its consumer has got."""

    def __init__(self, engine: TextEngine, index: int, request_id: RequestId) -> None:
        self.is_closed = False
        """Whether the last chunk, the one with the output, has been given out."""
        self._engine = engine
        self._index = index
        self._request_id = request_id
        self._num_characters = 0
        self._num_tokens = 0

    @property
    def has_ended(self) -> bool:
        """Whether the request has ended."""
        return self.is_closed or self._request_id in self._engine.outputs

    def next_chunk(self) -> StreamChunk | None:
        """What is new: text that has become certain with the tokens so far, or the end. None: nothing yet."""
        with self._engine.lock:
            output = self._engine.outputs.pop(self._request_id, None)
            if output is not None:
                self.is_closed = True
                text, token_ids = output.text, output.token_ids[self._num_tokens :]
            else:
                live = self._engine.live[self._request_id]
                assert live.text is not None, f"request {self._request_id!r} was not added for streaming"
                text = live.text.text
                if len(text) == self._num_characters:
                    return None
                token_ids = live.sequence.completion_token_ids[self._num_tokens :]
        new_text = text[self._num_characters :]
        self._num_characters += len(new_text)
        self._num_tokens += len(token_ids)
        return StreamChunk(
            index=self._index, request_id=self._request_id, text=new_text, token_ids=token_ids, output=output
        )
