"""Prompts in, results out: at once or as they come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.engine.steps import StepResult
from nanovllm.errors import RequestError
from nanovllm.interrupts import uninterrupted
from nanovllm.llm.feed import Feed
from nanovllm.llm.outputs import RequestOutput, StreamChunk
from nanovllm.llm.progress import ShowProgress, ThroughputBar
from nanovllm.llm.prompts import (
    Conversation,
    Prompt,
    TokenizedPrompt,
    is_chat,
    pair_params,
    read_conversations,
    read_prompts,
)
from nanovllm.llm.text_engine import TextEngine
from nanovllm.llm.tokenizer import Tokenizer
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import RequestId

if TYPE_CHECKING:
    from typing_extensions import Self

OnInterrupt = Literal["raise", "return"]
"""What a Ctrl-C does once the unfinished requests are aborted. ``return``: the results so far are returned, those of
the aborted requests with the text they had."""

Params = SamplingParams | Sequence[SamplingParams] | None
"""One for all prompts, or one for each; None: the defaults."""


class TextGenerator:
    """Generates text with an engine and a tokenizer that are given. ``LLM`` is this with a model that it loads.

    An engine goes on after anything: a refused request, a Ctrl-C, an abandoned stream. Its prefix cache stays
    filled from one call to the next.
    """

    def __init__(self, engine: TextEngine, tokenizer: Tokenizer) -> None:
        self.engine = engine
        self.tokenizer = tokenizer

    @property
    def config(self) -> Config:
        """The options that the engine runs with."""
        return self.engine.config

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer, as in vLLM."""
        return self.tokenizer

    # ---- all at once -----------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        use_tqdm: ShowProgress = True,
        *,
        on_interrupt: OnInterrupt = "raise",
    ) -> list[RequestOutput]:
        """Complete one prompt or several; texts and lists of token ids may be mixed. Results come in that order.

        ``use_tqdm``: show a progress bar where standard error is a terminal; ``"always"``: anywhere.
        A request that can never run does not disturb the others: its result has the ``finish_reason``
        ``rejected`` and an ``error``. If all of them are like that, the first one's ``RequestError`` is raised.
        """
        return self._generate(read_prompts(prompts, self.tokenizer), sampling_params, use_tqdm, on_interrupt)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: Params = None,
        use_tqdm: ShowProgress = True,
        *,
        on_interrupt: OnInterrupt = "raise",
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several. Else like ``generate``.

        ``template_options`` go to the chat template: ``add_generation_prompt`` (true unless given),
        ``chat_template``, ``tools``, or what this model's template knows, like ``enable_thinking``.
        """
        prompts = read_conversations(messages, self.tokenizer, **template_options)
        return self._generate(prompts, sampling_params, use_tqdm, on_interrupt)

    def _generate(
        self, prompts: list[TokenizedPrompt], params: Params, use_tqdm: ShowProgress, on_interrupt: OnInterrupt
    ) -> list[RequestOutput]:
        chosen_params = pair_params(params, len(prompts))
        with ThroughputBar(len(prompts), use_tqdm) as progress:
            requests = self._make_requests(prompts, chosen_params)
            ids = [request.request_id for request in requests]
            with self._ended_afterwards(ids, on_interrupt):
                self._add_all(requests, prompts)
                for request_id in ids:
                    while request_id not in self.engine.outputs:
                        progress.count(self.engine.step())
        outputs = self.engine.take(ids)
        _raise_if_all_rejected(outputs)
        return outputs

    def run_requests(
        self,
        requests: Iterable[Request],
        *,
        on_step: Callable[[StepResult], object] | None = None,
        on_interrupt: OnInterrupt = "raise",
    ) -> list[RequestOutput]:
        """Run a workload: requests with ids and arrivals of their own, in the order of their arrival; where those stand
        that wait for others, see ``nanovllm.engine.arrivals``.

        Arrivals, in seconds or steps, count from now. ``on_step`` is called after each step. Results come in the
        order of the requests, refused ones among them; after a Ctrl-C, those that had not arrived yet are left out.
        Raises ``RequestError`` for an id that occurs twice.
        """
        ids: dict[RequestId, None] = {}
        with self._ended_afterwards(ids, on_interrupt):
            for result in self.engine.run(self._arriving(requests, ids)):
                if on_step is not None:
                    on_step(result)
        return self.engine.take(ids)

    def _arriving(self, requests: Iterable[Request], ids: dict[RequestId, None]) -> Iterator[Request]:
        start_s, first_step = self.engine.clock.now(), self.engine.step_index
        for request in requests:
            if request.request_id in ids or request.request_id in self.engine.live:
                raise RequestError("duplicate_id", f"request {request.request_id!r}: another one has this id")
            ids[request.request_id] = None
            if request.arrival_step is None:
                yield msgspec.structs.replace(request, arrival_s=start_s + request.arrival_s)
            else:
                yield msgspec.structs.replace(request, arrival_step=first_step + request.arrival_step)

    # ---- as it comes -----------------------------------------------------------------------------------------

    def stream(
        self,
        prompts: Prompt | Conversation | Sequence[Prompt] | Sequence[Conversation],
        sampling_params: Params = None,
        **template_options: Any,
    ) -> Iterator[StreamChunk]:
        """Complete prompts, or answer conversations, and yield each request's text as it becomes certain.

        Characters come whole, and no text that is cut off later, before a stop text. The texts of a request's
        chunks add up to the text that ``generate`` returns; the last chunk brings the whole output along. Refused
        requests are as in ``generate``. The requests arrive when the first chunk is asked for; closing the
        iterator aborts those that have not ended.
        """
        if is_chat(prompts):
            tokenized = read_conversations(prompts, self.tokenizer, **template_options)
        else:
            tokenized = read_prompts(prompts, self.tokenizer)
        return self._stream(tokenized, pair_params(sampling_params, len(tokenized)))

    def _stream(self, prompts: list[TokenizedPrompt], params: list[SamplingParams]) -> Iterator[StreamChunk]:
        requests = self._make_requests(prompts, params)
        ids = [request.request_id for request in requests]
        with self._ended_afterwards(ids):
            self._add_all(requests, prompts, streaming=True)
            _raise_if_all_rejected([self.engine.outputs.get(request_id) for request_id in ids])
            feeds = [Feed(self.engine, index, request_id) for index, request_id in enumerate(ids)]
            while feeds:
                for feed in feeds:
                    chunk = feed.next_chunk()
                    if chunk is not None:
                        yield chunk
                feeds = [feed for feed in feeds if not feed.is_closed]
                if feeds and not any(feed.has_ended for feed in feeds):
                    self.engine.step()

    def abort(self, request_id: RequestId) -> bool:
        """End a request early, from the consumer of a stream or from another thread. It keeps the text that it has
        got. False: there is no such request (any more)."""
        return self.engine.abort(request_id)

    def close(self) -> None:
        """Give back what the engine holds. Calling it again does nothing."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # ---- common to all ---------------------------------------------------------------------------------------

    def _make_requests(self, prompts: list[TokenizedPrompt], params: list[SamplingParams]) -> list[Request]:
        arrival_s = self.engine.clock.now()
        return [
            Request(
                request_id=self.engine.new_request_id(),
                prompt_token_ids=prompt.token_ids,
                sampling_params=sampling_params,
                arrival_s=arrival_s,
            )
            for prompt, sampling_params in zip(prompts, params, strict=True)
        ]

    def _add_all(self, requests: list[Request], prompts: list[TokenizedPrompt], *, streaming: bool = False) -> None:
        with uninterrupted():
            for request, prompt in zip(requests, prompts, strict=True):
                with suppress(RequestError):  # its output says so
                    self.engine.add(request, prompt=prompt.text, streaming=streaming)

    @contextmanager
    def _ended_afterwards(self, ids: Collection[RequestId], on_interrupt: OnInterrupt = "raise") -> Iterator[None]:
        """Abort those of the requests that have not ended when the block is left early, for whatever reason."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt) or on_interrupt == "raise":
                self.engine.withdraw(ids)
                raise
            for request_id in ids:
                self.engine.abort(request_id)
        finally:
            self.engine.settle()


def _raise_if_all_rejected(outputs: Sequence[RequestOutput | None]) -> None:
    errors = [output.error for output in outputs if output is not None and output.finish_reason == "rejected"]
    if errors and len(errors) == len(outputs):
        assert errors[0] is not None, "a rejected request has an error"
        raise errors[0]
