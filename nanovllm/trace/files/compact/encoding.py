"""From events to their forms, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Preempted,
    PrefixHit,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.files.compact.foresight import Foresight
from nanovllm.trace.files.compact.layout import FORMS, LAYOUT, Form


class Encoder:
    """Follows a run and says in which form each event is written."""

    def __init__(self) -> None:
        self._foresight = Foresight()
        self._forms = bytearray()
        self._by_form: dict[int, list[AnyEvent]] = {form: [] for form in LAYOUT}
        self._evicted: list[BlockEvicted] = []
        """The last events: what comes next says whether they are foreseen."""

    def follow(self, events: Iterable[AnyEvent]) -> None:
        """Take in the next events."""
        foresight, forms, by_form, evicted = self._foresight, self._forms, self._by_form, self._evicted
        for event in events:
            kind = type(event)
            if kind is BlockEvicted:
                evicted.append(event)  # type: ignore[arg-type]
                continue
            are_foreseen = bool(evicted) and foresight.blocks_evicted(evicted, getattr(event, "blocks", []))
            follow, in_full, foreseen = _RULES[kind]
            is_foreseen = follow is not None and follow(foresight, event)
            form = foreseen if is_foreseen else in_full
            if evicted:
                if are_foreseen and form is Form.BLOCKS_ALLOCATED_FORESEEN:
                    form = Form.BLOCKS_EVICTED_AND_ALLOCATED
                else:
                    self._write_evicted()
                evicted.clear()
            forms.append(form)
            by_form[form].append(event)

    def take_forms(self) -> tuple[bytes, dict[int, list[AnyEvent]]]:
        """Of the events since this was last called: the form of each, and the events of each form. Evictions that are
        foreseen have none."""
        self._foresight.blocks_evicted(self._evicted, [])
        self._write_evicted()
        self._evicted.clear()
        forms, by_form = bytes(self._forms), self._by_form
        self._forms, self._by_form = bytearray(), {form: [] for form in LAYOUT}
        return forms, by_form

    def _write_evicted(self) -> None:
        self._forms += bytes((Form.BLOCK_EVICTED,)) * len(self._evicted)
        self._by_form[Form.BLOCK_EVICTED] += self._evicted


class Decoder:
    """Follows a run and completes its events by what is foreseen."""

    def __init__(self) -> None:
        self._foresight = Foresight()

    def decode(self, forms: bytes, rows: Mapping[int, Iterator[tuple[Any, ...]]]) -> Iterator[AnyEvent]:
        """The events of ``Encoder.take_forms``. ``rows``: of each form, what is written of its events, one by one."""
        foresight = self._foresight
        for form in forms:
            kind, row, complete = LAYOUT[form].event_type, next(rows[form]), _COMPLETE.get(form)
            event = kind(*row) if complete is None else complete(foresight, *row)
            if form == Form.BLOCKS_EVICTED_AND_ALLOCATED:
                evicted = foresight.evictions(event.blocks)  # type: ignore[union-attr]
                foresight.blocks_evicted(evicted, [])
                yield from evicted
            follow = _FOLLOW.get(kind)
            if follow is not None:
                follow(foresight, event)
            yield event


_FOLLOW: dict[type, Callable[[Foresight, Any], bool]] = {
    StepStarted: Foresight.step_started,
    PrefixHit: Foresight.prefix_hit,
    BlocksAllocated: Foresight.blocks_allocated,
    BlockEvicted: Foresight.block_evicted,
    ChunkScheduled: Foresight.chunk_scheduled,
    DecodeScheduled: Foresight.decode_scheduled,
    Preempted: Foresight.preempted,
    BlocksHashed: Foresight.blocks_hashed,
    TokensAppended: Foresight.tokens_appended,
    RequestFinished: Foresight.request_finished,
    BlocksFreed: Foresight.blocks_freed,
    StepFinished: Foresight.step_finished,
}

_FORESEEN: dict[type, Form] = {
    StepStarted: Form.STEP_STARTED_FORESEEN,
    BlocksAllocated: Form.BLOCKS_ALLOCATED_FORESEEN,
    DecodeScheduled: Form.DECODE_SCHEDULED_FORESEEN,
    Preempted: Form.PREEMPTED_FORESEEN,
    BlocksHashed: Form.BLOCKS_HASHED_FORESEEN,
    TokensAppended: Form.TOKENS_APPENDED_FORESEEN,
    BlocksFreed: Form.BLOCKS_FREED_FORESEEN,
    StepFinished: Form.STEP_FINISHED_FORESEEN,
}

_RULES = {kind: (_FOLLOW.get(kind), form, _FORESEEN.get(kind, form)) for kind, form in FORMS.items()}
"""Type of event -> how it is followed, its form in full, its form if it comes as foreseen."""

_COMPLETE: dict[int, Callable[..., AnyEvent]] = {
    Form.STEP_STARTED_FORESEEN: lambda known, step, *counts: StepStarted(step, known.time, *counts),
    Form.BLOCKS_ALLOCATED_FORESEEN: lambda known, request, count: BlocksAllocated(request, known.next_blocks(count)),
    Form.BLOCKS_EVICTED_AND_ALLOCATED: lambda known, request, count: BlocksAllocated(request, known.next_blocks(count)),
    Form.DECODE_SCHEDULED_FORESEEN: lambda known: DecodeScheduled(known.decoding),
    Form.PREEMPTED_FORESEEN: lambda known, request, other, *counts: Preempted(
        request, other, known.blocks_to_free(request), *counts
    ),
    Form.BLOCKS_HASHED_FORESEEN: lambda known, request, hashes: BlocksHashed(
        request, known.blocks_to_hash(request, len(hashes)), hashes
    ),
    Form.TOKENS_APPENDED_FORESEEN: lambda known, tokens: TokensAppended(known.due, tokens),
    Form.BLOCKS_FREED_FORESEEN: lambda known, request: BlocksFreed(request, known.blocks_to_free(request)),
    Form.STEP_FINISHED_FORESEEN: lambda known, step, phase, tokens, host, device: StepFinished(
        step, known.end_of_step(host, device), phase, tokens, host, device
    ),
}
"""The event, from what is foreseen and the values that are written."""
