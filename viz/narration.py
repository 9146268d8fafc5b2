"""Events in words. Each sentence says what was decided, and the numbers that decided it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestId,
    RequestRejected,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from viz import sentences as kinds
from viz.sentences import Argument, Kind, Say, Sentence, count, ordinal

NAMED_IN_DECODE = 4
"""So many decoding requests are named; of more, their number is told."""

_FINISHES = {
    "length": "{r} finishes: it has all its {n} tokens",
    "eos": "{r} finishes after {n} tokens: the model ended the text",
    "stop": "{r} finishes after {n} tokens: its stop condition is met",
    "aborted": "{r} is aborted after {n} tokens",
    "error": "{r} fails after {n} tokens: the step could not be computed",
}


class Narrator:
    """Turns events into sentences. At hand is the replay to which an event was just applied.

    What it knows of the past is in ``hits`` and ``holds`` alone: between two steps, a narrator that is given them goes
    on in the same words.
    """

    def __init__(
        self,
        replay: Replay,
        say: Say,
        *,
        hits: Mapping[RequestId, int] | None = None,
        holds: Mapping[RequestId, str] | None = None,
    ) -> None:
        self.hits = dict(hits or {})
        """Of requests that hold blocks: how many tokens were found in the cache when they were admitted, unless 0."""
        self.holds = dict(holds or {})
        """Who was held in this step, or the last one, and why."""
        self._holds_before: dict[RequestId, str] = {}
        self._replay = replay
        self._hear = say
        self._evicted: list[int] = []
        self._published: list[int] = []

    def tell(self, event: AnyEvent) -> None:
        """Say the event's sentence, if it has one."""
        teller = _TELLERS.get(type(event))
        if teller is not None:
            teller(self, event)

    def is_part(self, event: ChunkScheduled) -> bool:
        """Whether a prompt is computed in several chunks, of which this is one."""
        return event.remaining > 0 or event.start > self.hits.get(event.request, 0)

    def _say(self, kind: Kind, template: str, *arguments: Argument) -> None:
        self._hear(Sentence(kind, template, arguments))

    def _option(self, name: str) -> int:
        """A number of the header's options, 0 where it has none."""
        assert self._replay.header is not None, "the header comes first"
        value = self._replay.header.config.get(name, 0)
        return value if isinstance(value, int) else 0

    def note_step(self, _: StepStarted) -> None:
        """What was said of the step before is past."""
        self._holds_before, self.holds = self.holds, {}

    # ---- requests ----------------------------------------------------------------------------------------------------

    def tell_arrival(self, event: RequestAdded) -> None:
        """A request has come."""
        template = f"{{r}} arrives: a prompt of {count(event.prompt_tokens, 'token')}, at most {{n}} to generate"
        self._say(kinds.ARRIVAL, template, event.request, event.prompt_tokens, event.max_tokens)

    def tell_rejection(self, event: RequestRejected) -> None:
        """A request was refused: no state tells of it, so its id is a text."""
        who = str(event.request)
        if event.needed_blocks:
            template = f"{{t}} is refused: it needs {count(event.needed_blocks, 'block')}, the pool has {{n}}"
            self._say(kinds.REJECTED, template, who, event.needed_blocks, event.num_blocks)
        else:
            self._say(kinds.REJECTED, "{t} is refused: {t}", who, event.reason)

    def tell_finish(self, event: RequestFinished) -> None:
        """A request has ended."""
        state = self._replay.releasing or self._replay.finished[-1]
        arguments = event.request, state.num_completion_tokens
        if event.reason in _FINISHES:
            self._say(kinds.FINISHED, _FINISHES[event.reason], *arguments)
        else:
            self._say(kinds.FINISHED, "{r} finishes after {n} tokens: {t}", *arguments, event.reason)
        self.hits.pop(event.request, None)

    # ---- decisions ---------------------------------------------------------------------------------------------------

    def tell_chunk(self, event: ChunkScheduled) -> None:
        """A prompt, or a part of it, is computed."""
        request, tokens = event.request, count(event.tokens, "token")
        verb = "{r} recomputes" if self._replay.requests[request].num_preemptions else "{r} prefills"
        if event.remaining:
            template = f"{verb} a chunk: {tokens} from {{n}} on, {{n}} remain"
            self._say(kinds.CHUNK, template, request, event.tokens, event.start, event.remaining)
        elif self.is_part(event):
            self._say(kinds.CHUNK, f"{verb} its last chunk: {tokens} from {{n}} on", request, event.tokens, event.start)
        elif event.start:
            self._say(kinds.PREFILL, f"{verb} {tokens} after {{n}} cached ones", request, event.tokens, event.start)
        else:
            self._say(kinds.PREFILL, f"{verb} all its {tokens}", request, event.tokens)

    def tell_decode(self, event: DecodeScheduled) -> None:
        """Running requests compute their newest token."""
        requests = event.requests
        if not requests:  # the engine tells of no such decode; whoever wrote this trace does
            return
        if len(requests) > NAMED_IN_DECODE:
            self._say(kinds.DECODE, "{n} requests decode one token each", len(requests))
        elif len(requests) == 1:
            self._say(kinds.DECODE, "{r} decodes one token", *requests)
        else:
            names = ", ".join(["{r}"] * (len(requests) - 1)) + " and {r}"
            self._say(kinds.DECODE, f"{names} decode one token each", *requests)

    def tell_preemption(self, event: Preempted) -> None:
        """A request gave up its blocks."""
        lost = f"gives up {count(len(event.blocks), 'block')}, loses {count(event.tokens_lost, 'cached token')}"
        numbers = len(event.blocks), event.tokens_lost
        times = f"{ordinal(event.count)} time"
        if event.request == event.for_request:
            template = f"{{r}} preempts itself, the last one running: {lost}; {times}"
            self._say(kinds.PREEMPTED, template, event.request, *numbers)
        else:
            template = f"{{r}} is preempted for {{r}}: {lost}; {times}"
            self._say(kinds.PREEMPTED, template, event.request, event.for_request, *numbers)
        self.hits.pop(event.request, None)

    def tell_hold(self, event: Held) -> None:
        """A request was looked at and not scheduled."""
        is_still = self._holds_before.get(event.request) == event.reason
        self.holds[event.request] = event.reason
        kind, verb = (kinds.STILL_HELD, "{r} is still held") if is_still else (kinds.HELD, "{r} is held")
        why, numbers = self._why_held(event)
        self._say(kind, f"{verb}: {why}", event.request, *numbers)

    def _why_held(self, event: Held) -> tuple[str, list[Argument]]:
        budget = self._option("max_num_batched_tokens")
        if event.reason == "no_slot":
            return "all {n} slots are taken", [self._option("max_num_seqs")]
        if event.reason == "no_budget":
            return "the step's budget of {n} tokens is used up", [budget]
        state = self._replay.requests[event.request]
        at_most = "" if state.block_table else "up to "  # only a look-up tells how much of it is in the cache
        if event.reason == "chunk_not_first":
            left = budget - sum(self._replay.scheduled.values())
            why = f"its {at_most}{{n}} tokens exceed the {{n}} left of the budget; only a step's first prompt is split"
            return why, [state.num_tokens - state.num_cached_tokens, left]
        if event.reason == "no_blocks":
            pool = self._replay.pool
            needed = -(-state.num_tokens // pool.block_size) - len(state.block_table)
            why, num_free = f"needs {at_most}{count(needed, 'block')}, {{n}} free", len(pool.free_blocks)
            if watermark := self._option("watermark_blocks"):
                return f"{why}, of which {{n}} stay free", [needed, num_free, watermark]
            return why, [needed, num_free]
        return "{t}", [event.reason]

    # ---- blocks ------------------------------------------------------------------------------------------------------

    def tell_hit(self, event: PrefixHit) -> None:
        """Leading blocks were found in the cache."""
        template = f"{{r}} finds {count(event.tokens, 'token')} in the cache: {_blocks(event.blocks)}"
        self._say(kinds.HIT, template, event.request, event.tokens, event.blocks)
        self.hits[event.request] = event.tokens

    def note_eviction(self, event: BlockEvicted) -> None:
        """Kept until the blocks are handed out: one sentence for all."""
        self._evicted.append(event.block)

    def tell_allocation(self, event: BlocksAllocated) -> None:
        """New blocks were handed out, some of which may have held cached content."""
        request, evicted = event.request, self._evicted
        taken = f"{{r}} takes {_blocks(event.blocks)}"
        if evicted == event.blocks:
            its = "its" if len(evicted) == 1 else "their"
            self._say(kinds.EVICTED, f"{taken} and evicts {its} cached content", request, event.blocks)
        elif evicted:
            template = f"{taken} and evicts the cached content of {_blocks(evicted)}"
            self._say(kinds.EVICTED, template, request, event.blocks, evicted)
        elif event.blocks:
            self._say(kinds.ALLOCATED, taken, request, event.blocks)
        self._evicted = []

    def note_publication(self, event: BlocksHashed) -> None:
        """Kept until the step's results are taken in: one sentence for all."""
        self._published += event.blocks

    def tell_tokens(self, _: TokensAppended | StepFinished) -> None:
        """All results are taken in: the blocks they filled may be reused from now on."""
        if self._published:
            are = "is" if len(self._published) == 1 else "are"
            template = f"{_blocks(self._published)} {are} full and can be shared"
            self._say(kinds.PUBLISHED, template, self._published)
            self._published = []

    def tell_step(self, event: StepFinished) -> None:
        """Only a step that computed nothing is worth a sentence."""
        self.tell_tokens(event)
        if event.tokens == 0:
            self._say(kinds.EMPTY, "nothing could be scheduled")


def _blocks(blocks: list[int]) -> str:
    return "block {b}" if len(blocks) == 1 else "blocks {b}"


_TELLERS: dict[type, Callable[[Narrator, Any], None]] = {
    StepStarted: Narrator.note_step,
    RequestAdded: Narrator.tell_arrival,
    RequestRejected: Narrator.tell_rejection,
    RequestFinished: Narrator.tell_finish,
    ChunkScheduled: Narrator.tell_chunk,
    DecodeScheduled: Narrator.tell_decode,
    Preempted: Narrator.tell_preemption,
    Held: Narrator.tell_hold,
    PrefixHit: Narrator.tell_hit,
    BlockEvicted: Narrator.note_eviction,
    BlocksAllocated: Narrator.tell_allocation,
    BlocksHashed: Narrator.note_publication,
    TokensAppended: Narrator.tell_tokens,
    StepFinished: Narrator.tell_step,
}
