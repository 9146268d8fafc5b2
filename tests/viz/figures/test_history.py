"""A history says of each step how things stood while it computed: checked against the replayer, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from nanovllm.errors import ContradictionError, TraceError
from nanovllm.trace.events import (
    AnyEvent,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from tests.trace.runs import Scenario, preempting_run, request, scenarios
from tests.viz.figures import runs
from viz.figures import history_of
from viz.figures.blocks import block_owners
from viz.figures.history import CACHED, FREE, SHARED, Activity, Chunk, Span

RESULTS = (BlocksHashed, TokensAppended, RequestFinished, StepFinished)


class Watched:
    """Of each step, read off the replayer when its decisions are made."""

    def __init__(self, events: list[AnyEvent]) -> None:
        self.counts: list[tuple[int, ...]] = []
        self.doing: list[dict[object, str]] = []
        self.owners: list[list[object]] = []
        replay = Replay()
        is_deciding = False
        for event in events:
            if is_deciding and isinstance(event, RESULTS):
                is_deciding = False
                self._look(replay)
            replay.apply(event)
            if isinstance(event, StepStarted):
                is_deciding, self._chunks, self._decodes, self._held = True, [], [], set()
            elif isinstance(event, ChunkScheduled):
                self._chunks.append(event)
            elif isinstance(event, DecodeScheduled):
                self._decodes = event.requests
            elif isinstance(event, Held):
                self._held.add(event.request)

    def _look(self, replay: Replay) -> None:
        prefill = sum(chunk.tokens for chunk in self._chunks)
        pool = len(replay.waiting), len(replay.running), replay.pool.num_blocks_in_use
        cached = sum(block in replay.block_hashes for block in replay.free_blocks)
        self.counts.append((replay.step, *pool, cached, prefill, len(self._decodes)))
        self.doing.append(
            {chunk.request: "prefill" for chunk in self._chunks}
            | dict.fromkeys(self._decodes, "decode")
            | {name: "idle" for name in replay.running if name not in replay.scheduled and name not in self._held}
        )
        holders: dict[int, list[object]] = {}
        for name, state in replay.requests.items():
            for block in state.block_table:
                holders.setdefault(block, []).append(name)
        self.owners.append(
            [self._owner(replay, block, holders.get(block, [])) for block in range(replay.pool.num_blocks)]
        )

    def _owner(self, replay: Replay, block: int, holders: list[object]) -> object:
        if len(holders) == 1:
            return holders[0]
        return SHARED if holders else CACHED if block in replay.block_hashes else FREE


@settings(max_examples=60)
@given(scenarios())
def test_history_says_what_the_replayer_sees(scenario: Scenario) -> None:
    events = scenario.run()
    watched = Watched(events)
    if not watched.counts:
        with pytest.raises(TraceError, match="nothing to draw"):
            history_of(events)
        return
    history = history_of(events)
    steps = history.steps
    columns = (
        steps.number,
        steps.waiting,
        steps.running,
        steps.in_use_blocks,
        steps.cached_blocks,
        steps.prefill_tokens,
        steps.decode_tokens,
    )
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == watched.counts

    positions = np.arange(len(steps))
    names = [life.request for life in history.requests]
    owners = block_owners(history, positions)
    told = [[names[code] if code >= 0 else code for code in column] for column in owners.T.tolist()]
    assert told == watched.owners

    doing: list[dict[object, str]] = [{} for _ in positions]
    for life in history.requests:
        for span in life.spans(len(steps)):
            for position in range(span.first, span.last + 1):
                doing[position][life.request] = span.activity.look.name
    working = ("prefill", "decode", "idle")
    assert [{name: word for name, word in step.items() if word in working} for step in doing] == watched.doing


def test_a_life_in_spans() -> None:
    history = history_of(preempting_run())
    assert history.problem is None
    first, second = history.requests
    assert first.spans(99) == [Span(Activity.PREFILL, 0, 0), Span(Activity.DECODE, 1, 8)]
    assert second.spans(99)[:4] == [
        Span(Activity.PREFILL, 0, 0),
        Span(Activity.DECODE, 1, 3),
        Span(Activity.PREEMPTED, 4, 8),
        Span(Activity.PREFILL, 9, 9),
    ]
    assert second.preemptions == [4]
    assert second.chunks == [Chunk(0, 0, 4, 0), Chunk(9, 0, 8, 0)]
    assert second.holds == [(5, 8, "no_blocks")]
    assert history.steps.preemptions.tolist()[:6] == [0, 0, 0, 0, 1, 0]


def test_the_head_of_the_queue_is_held_and_the_others_wait() -> None:
    history = history_of(runs.a_bit_of_everything())
    lives = {life.request: life for life in history.requests}
    spans = [(span.activity.name, span.first, span.last) for span in lives["D"].spans(99)]
    assert spans[:5] == [
        ("HELD", 4, 6),
        ("WAITING", 7, 10),
        ("HELD", 11, 12),
        ("WAITING", 13, 15),
        ("PREFILL", 16, 16),
    ]
    assert lives["B"].hits == [(2, 12)]


def test_a_step_that_was_cut_is_told_as_far_as_it_goes() -> None:
    events = preempting_run()
    cut = next(i for i, event in enumerate(events) if isinstance(event, StepStarted) and event.step == 4) + 4
    history = history_of(events[:cut])
    assert history.steps.number.tolist() == [0, 1, 2, 3, 4]
    assert history.problem == "incomplete: the trace ends within step 4"
    assert history.requests[1].end is None


def test_step_numbers_may_leave_gaps() -> None:
    events = runs.run([request("A", range(3), 2), request("B", range(3, 6), 2, arrival_step=10)], num_blocks=4)
    history = history_of(events)
    assert history.steps.number.tolist() == [0, 1, 10, 11]
    assert history.steps.is_idle_after.tolist() == [False, True, False, True]


def test_a_history_is_read_once() -> None:
    history = history_of(preempting_run())
    assert history_of(history) is history


def test_a_trace_without_events_or_steps() -> None:
    with pytest.raises(TraceError, match="is empty: a trace begins with"):
        history_of([])
    with pytest.raises(TraceError, match="nothing to draw: no step was run"):
        history_of(preempting_run()[:1])


def test_a_contradiction_is_drawn_up_to_there() -> None:
    events = preempting_run()
    finished = next(i for i, event in enumerate(events) if isinstance(event, StepFinished) and event.step == 2)
    history = history_of(events[: finished - 1] + events[finished:])
    assert history.steps.number.tolist() == [0, 1, 2, 3]
    assert history.problem is not None
    assert history.problem.startswith("contradiction: step 3: request 0 decodes its newest token, but 7 of its 7")
    with pytest.raises(ContradictionError):
        history_of(events[1:])
