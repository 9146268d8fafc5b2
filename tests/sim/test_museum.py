"""Each rule of the museum does the harm it is shown for, and ours does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest

from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.scheduler import Scheduler
from sim.museum import Line, MuseumRun, block_rules, run, scheduler_rules, side_by_side

X4, X8, X12, X32 = (list(range(1, length + 1)) for length in (4, 8, 12, 32))


@dataclass(frozen=True)
class Exhibit:
    rule: type[Scheduler] | type[BlockManager] | str
    lines: tuple[Line, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def runs(self) -> tuple[MuseumRun, MuseumRun]:
        return side_by_side(self.lines, self.rule, **self.options)

    @property
    def ours(self) -> MuseumRun:
        return self.runs[0]

    @property
    def theirs(self) -> MuseumRun:
        return self.runs[1]


SLOTS = Exhibit(scheduler_rules.CountsOnlyThisStep, ((4, 6, 0), (4, 6, 0), (4, 3, 1)), {"max_num_seqs": 2})
TOO_LONG = Exhibit(scheduler_rules.ChecksOnlyThePrompt, ((8, 4, 0),), {"num_blocks": 2})
TWICE = Exhibit(
    scheduler_rules.SubtractsThePrefixTwice,
    (([*X32, *range(100, 132)], 1, 0), ([*X32, *range(200, 232)], 2, 5)),
    {"block_size": 16, "max_num_batched_tokens": 20},
)
ANYONE = Exhibit("mixed", ((6, 1, 0), (7, 1, 0), (2, 1, 0)), {"max_num_batched_tokens": 8, "max_num_seqs": 8})
STARVED = Exhibit(
    "mixed",
    ((4, 4, 0), *((8, 4, step) for step in range(1, 13))),
    {"max_num_batched_tokens": 8, "max_num_seqs": 4},
)
DEADLOCK = Exhibit(scheduler_rules.WaitsForABlock, ((4, 9, 0), (4, 9, 0)), {"num_blocks": 4})
OLDEST = Exhibit(scheduler_rules.PreemptsTheOldest, ((4, 3, 0), (3, 2, 0), (3, 2, 0), (2, 3, 0)), {"num_blocks": 4})
IN_QUEUE = Exhibit(scheduler_rules.LeavesItInTheQueue, ((4, 5, 0), (4, 5, 0)), {"num_blocks": 3})
LAST = Exhibit(scheduler_rules.QueuesThePreemptedLast, ((8, 9, 0), (8, 9, 0), (8, 9, 0), (4, 1, 2)), {"num_blocks": 6})

REMAINDER = Exhibit(block_rules.GrowsOnRemainderOne, ((3, 5, 0),), {"block_size": 1})
FREE_HITS = Exhibit(
    block_rules.ChargesOnlyNewBlocks,
    (([*X8, 100], 1, 0), (5, 10, 1), ([*X8, *range(300, 309)], 2, 2)),
    {"num_blocks": 6},
)
NEW_FIRST = Exhibit(
    block_rules.TakesNewBlocksFirst, (([*X8, 100], 1, 0), (8, 1, 1), ([*X8, *range(300, 305)], 1, 2)), {"num_blocks": 4}
)
LAST_BLOCK = Exhibit(block_rules.ReusesTheLastBlock, ((X8, 1, 0), (X8, 1, 1)))
COLLISION = Exhibit(block_rules.TrustsTheHash, (([*X4, *range(50, 55)], 2, 0), ([9, 9, 9, 9, *range(50, 55)], 2, 1)))
UNCHAINED = Exhibit(
    block_rules.HashesWithoutTheParent,
    (([*X4, 5, 5, 5, 5, 100], 1, 0), ([9, 9, 9, 9, *X8], 1, 1), ([*X4, *X8], 1, 2)),
)
ONE_COPY = Exhibit(
    block_rules.KnowsOneCopy, (([*X4, 50], 8, 0), ([*X4, 51], 1, 0), (13, 1, 2), ([*X4, 52], 1, 3)), {"num_blocks": 6}
)
STALE = Exhibit(block_rules.KeepsStaleHashes, ((X4, 1, 0), (8, 1, 1), ([*X4, 52], 1, 2)), {"num_blocks": 2})
TOO_EARLY = Exhibit(block_rules.PublishesBeforeComputing, (([*X4, 50], 8, 0), ([*X4, 51], 1, 0)))
FIRST_FIRST = Exhibit(
    block_rules.ReleasesTheFirstBlockFirst, ((X12, 1, 0), (8, 1, 1), ([*X12, 100], 1, 2)), {"num_blocks": 4}
)


def name_of(rule: type[Scheduler] | type[BlockManager] | str) -> str:
    return rule if isinstance(rule, str) else rule.__name__


EXHIBITS = [value for value in globals().values() if isinstance(value, Exhibit)]


def test_every_rule_is_shown() -> None:
    rules = {
        value
        for module in (scheduler_rules, block_rules)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    assert {exhibit.rule for exhibit in EXHIBITS} == rules | {"mixed"}


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: name_of(exhibit.rule))
def test_ours_is_sound(exhibit: Exhibit) -> None:
    ours = exhibit.ours
    assert (ours.violations, ours.misreads, ours.failure) == ([], [], None)
    assert ours.outcome == "ends"


@pytest.mark.parametrize(
    ("exhibit", "law"),
    [
        (SLOTS, "slots"),
        (TOO_LONG, "progress"),
        (TWICE, "chunk"),
        (DEADLOCK, "progress"),
        (OLDEST, "victim"),
        (IN_QUEUE, "queue"),
        (LAST, "order"),
        (REMAINDER, "coverage"),
        (NEW_FIRST, "hit"),
        (LAST_BLOCK, "counts"),
        (COLLISION, "hit"),
        (STALE, "eviction"),
        (TOO_EARLY, "publication"),
        (FIRST_FIRST, "release"),
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value.rule),
)
def test_the_trace_tells(exhibit: Exhibit, law: str) -> None:
    theirs = exhibit.theirs
    assert theirs.violations[0].law == law
    assert theirs.events[0].policy.endswith(name_of(exhibit.rule))


@pytest.mark.parametrize("exhibit", [COLLISION, UNCHAINED, STALE, TOO_EARLY])
def test_someone_reads_kv_that_is_not_its_own(exhibit: Exhibit) -> None:
    assert exhibit.theirs.misreads


def test_what_was_misread_is_told() -> None:
    [misread] = STALE.theirs.misreads
    assert str(misread) == (
        "step 2: C reads block 0 as the KV of token 1; it holds the KV of token 2004 after [2000, 2001, 2002, 2003]"
    )


@pytest.mark.parametrize(
    ("exhibit", "failure"),
    [
        (TOO_LONG, "not over after 100 steps: A"),
        (DEADLOCK, "not over after 100 steps: A, B"),
        (IN_QUEUE, "AssertionError: request B needs a slot for token 4, its table ends at 4"),
        (REMAINDER, "AssertionError: request A needs a slot for token 3, its table ends at 3"),
        (FREE_HITS, "AssertionError: 3 blocks are taken, but only 2 are free"),
        (NEW_FIRST, "AssertionError: block 1 heads a published block and is not published itself"),
    ],
)
def test_the_run_does_not_come_to_its_end(exhibit: Exhibit, failure: str) -> None:
    assert exhibit.theirs.failure == failure
    assert exhibit.theirs.outcome == ("never ends" if failure.startswith("not over") else "dies")


def test_the_prefix_is_subtracted_twice() -> None:
    assert TWICE.ours.chunks_of("B") == [(5, "32+20"), (6, "52+12")]
    assert TWICE.theirs.chunks_of("B") == [(5, "32+20"), (6, "52-20")]


def test_what_is_lost_without_an_error() -> None:
    assert (ONE_COPY.ours.chunks_of("D"), ONE_COPY.theirs.chunks_of("D")) == ([(3, "4+1")], [(3, "0+5")])
    ours, theirs = FIRST_FIRST.ours, FIRST_FIRST.theirs
    assert (ours.chunks_of("C"), theirs.chunks_of("C")) == ([(2, "8+5")], [(2, "0+13")])
    assert (OLDEST.ours.preemptions, OLDEST.theirs.preemptions) == ([(1, "D")], [(1, "B")])


def test_other_policies_are_sound_too() -> None:
    for exhibit in (ANYONE, STARVED):
        theirs = exhibit.theirs
        assert (theirs.violations, theirs.misreads, theirs.failure) == ([], [], None)
    assert (ANYONE.ours.step_tokens, ANYONE.theirs.step_tokens) == ([6, 7, 2], [8, 7])
    assert (STARVED.ours.token_steps_of("A"), STARVED.ours.num_steps) == ([0, 4, 5, 6], 25)
    assert (STARVED.theirs.token_steps_of("A"), STARVED.theirs.num_steps) == ([0, 1, 2, 3], 21)


def test_admission_by_the_next_chunk_thrashes() -> None:
    options = {"policy": "mixed", "num_blocks": 6, "max_num_batched_tokens": 8, "enable_prefix_caching": False}
    whole, chunk = (run([(2, 16, 3), (16, 3, 3)], admit_by=by, **options) for by in ("prompt", "chunk"))
    assert (whole.num_computed_tokens, len(whole.preemptions)) == (51, 1)
    assert (chunk.num_computed_tokens, len(chunk.preemptions)) == (93, 6)


def test_a_listing_of_some_steps() -> None:
    ours = FIRST_FIRST.ours
    assert ours.listing(2, 2).splitlines()[:2] == [
        "+ request C: a prompt of 13 tokens, at most 1 to generate",
        "step 2 prefill 5 tokens | C: hit 8 (blocks 0 1), new blocks 2 3, chunk 8..13 of 13",
    ]
    assert ours.listing().count("\nstep") == 3
    assert run([(16, 1, 0)], num_blocks=3).refused == ["A"]
