"""The laws of a trace: runs of the engine keep all of them, and each that is broken on purpose is found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from nanovllm.config import POLICIES
from nanovllm.errors import TraceError
from nanovllm.trace.check import check
from nanovllm.trace.events import (
    Admitted,
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from nanovllm.trace.state.laws import ENGINE_POLICIES, LAWS, WATCHED_LAWS, Violation
from nanovllm.trace.state.pool import BlockPool
from nanovllm.trace.timeline import Timeline
from tests.trace.runs import Scenario, header, preempting_run, scenarios


@given(scenarios())
@settings(max_examples=100)
def test_runs_of_the_engine_break_no_law(scenario: Scenario) -> None:
    assert check(scenario.run()) == []


def test_a_contradiction_is_the_last_violation() -> None:
    events = preempting_run()
    double = next(i for i, event in enumerate(events) if isinstance(event, BlocksFreed))
    violations = check([*events[: double + 1], *events[double:]])
    assert [(v.law, v.event) for v in violations] == [("release", double + 1)]
    assert str(violations[0]).startswith(f"step 4, event {double + 1}: request 1 frees blocks, but was neither")
    assert str(violations[0]).endswith(f"release: {LAWS['release']}")


def started(policy: str = "prefill_first", **options: object) -> AnyEvent:
    return TraceStarted(1, "hand", policy, "", header(**options))


def two_requests(policy: str = "prefill_first", **options: object) -> list[AnyEvent]:
    """a (6 tokens) and b (3 tokens) wait in step 0 of a pool of 8 blocks of 4."""
    added: list[AnyEvent] = [RequestAdded("a", 0.0, 0.0, 6, 3), RequestAdded("b", 0.0, 0.0, 3, 3)]
    return [started(policy, **options), *added, StepStarted(0, 0.0, 2, 0, 8)]


A_PREFILL: list[AnyEvent] = [BlocksAllocated("a", [0, 1]), ChunkScheduled("a", 0, 6, 0)]
B_PREFILL: list[AnyEvent] = [BlocksAllocated("b", [2]), ChunkScheduled("b", 0, 3, 0)]
PREFILLS = [*A_PREFILL, *B_PREFILL]
A_BEGINS: list[AnyEvent] = [BlocksAllocated("a", [0]), Admitted("a"), ChunkScheduled("a", 0, 2, 4)]
TOKENS: list[AnyEvent] = [TokensAppended(["a", "b"], [7, 8]), StepFinished(0, 1.0, "prefill", 9)]
DECODE: list[AnyEvent] = [StepStarted(1, 1.0, 0, 2, 5), DecodeScheduled(["a", "b"])]
B_DECODES: list[AnyEvent] = [
    StepStarted(1, 1.0, 0, 2, 5),
    DecodeScheduled(["b"]),
    TokensAppended(["b"], [8]),
    StepFinished(1, 2.0, "decode", 1),
]
PREFILLED = [*two_requests(), *PREFILLS, *TOKENS]
FREED: list[AnyEvent] = [BlocksFreed("a", [1, 0])]
PUBLISHED_AND_FREED = [
    *two_requests(),
    *A_PREFILL,
    BlocksHashed("a", [0], ["a" * 16]),
    TokensAppended(["a"], [7]),
    RequestFinished("a", 1.0, "eos"),
    BlocksFreed("a", [1, 0]),
    StepFinished(0, 1.0, "prefill", 6),
    StepStarted(1, 1.0, 1, 0, 8),  # free: 2 to 7, 1, and 0 with its content
]

BROKEN: list[tuple[str, str, list[AnyEvent]]] = [
    ("arrival", "request a is handed over at 1.0 s, before 2.0 s", [started(), RequestAdded("a", 1.0, 2.0, 1, 1)]),
    ("arrival", "request a came at -1.0 s, before the start", [started(), RequestAdded("a", 1.0, -1.0, 1, 1)]),
    ("slots", "2 requests run, max_num_seqs is 1", [*two_requests(max_num_seqs=1), *PREFILLS]),
    ("budget", "9 tokens are scheduled, .* is 8", [*two_requests(max_num_batched_tokens=8), *PREFILLS]),
    (
        "budget",
        "3 tokens are scheduled",
        [
            *two_requests(max_num_batched_tokens=2),
            BlocksAllocated("a", [0, 1]),
            ChunkScheduled("a", 0, 2, 4),
            BlocksAllocated("b", [2]),
            ChunkScheduled("b", 0, 1, 2),
        ],
    ),
    (
        "order",
        "request b is scheduled before a, which waits ahead",
        [*two_requests(), BlocksAllocated("b", [0]), ChunkScheduled("b", 0, 3, 0)],
    ),
    (
        "victim",
        "request a is preempted, but b is at the tail",
        [*PREFILLED, StepStarted(1, 1.0, 0, 2, 5), Preempted("a", "b", [1, 0], 6, 1)],
    ),
    (
        "slots",
        "2 requests run, max_num_seqs is 1",
        [*two_requests("mixed", max_num_seqs=1), *A_BEGINS, BlocksAllocated("b", [1]), Admitted("b")],
    ),
    (
        "order",
        "request b is scheduled before a, which waits ahead",
        [*two_requests("mixed"), BlocksAllocated("b", [0]), Admitted("b")],
    ),
    (
        "order",
        "request a is scheduled before b, which waits ahead",
        [*two_requests("shortest_first", ageing=1.0), *A_BEGINS],
    ),
    (
        "victim",
        "request b is preempted, but a is at the tail",
        [
            started("priority", ageing=0.01),
            RequestAdded("a", 0.0, 0.0, 6, 3, 1),
            StepStarted(0, 0.0, 1, 0, 8),
            *A_PREFILL,
            TokensAppended(["a"], [7]),
            StepFinished(0, 1.0, "prefill", 6),
            RequestAdded("b", 1.0, 1.0, 3, 3, 0),
            StepStarted(1, 1.0, 1, 1, 6),
            *B_PREFILL,
            TokensAppended(["b"], [7]),
            StepFinished(1, 2.0, "prefill", 3),
            StepStarted(2, 2.0, 0, 2, 5),
            Preempted("b", "a", [2], 3, 1),
        ],
    ),
    (
        "held",
        "request b is held for 'no_blocks'",
        [*two_requests("mixed"), *A_BEGINS, Held("b", "no_blocks")],
    ),
    (
        "hand_out",
        r"blocks \[0\] were evicted and are not handed out",
        [*PUBLISHED_AND_FREED, BlockEvicted(0, "a" * 16), BlocksAllocated("b", [2])],
    ),
    (
        "hand_out",
        r"blocks \[0\] were evicted",
        [*PUBLISHED_AND_FREED, BlockEvicted(0, "a" * 16), StepFinished(1, 1.0, "decode", 0)],
    ),
    (
        "caching_off",
        r"blocks \[0\] of request a",
        [*two_requests(enable_prefix_caching=False), *PREFILLS, BlocksHashed("a", [0], ["a" * 16])],
    ),
    ("held", "request a is held for 'no_slot'", [*two_requests(), Held("a", "no_slot")]),
    ("held", "request a is held for 'no_budget'", [*two_requests(), Held("a", "no_budget")]),
    ("held", "request a is held for 'no_blocks'", [*two_requests(), Held("a", "no_blocks")]),
    ("held", "request a is held for 'chunk_not_first'", [*two_requests(), Held("a", "chunk_not_first")]),
    ("held", "request a is held for 'no_slot'", [*two_requests(max_num_seqs=1), *A_PREFILL, Held("a", "no_slot")]),
    ("held", "request a is held for 'mood'", [*two_requests(), Held("a", "mood")]),
    ("progress", "2 requests were there", [*two_requests(), StepFinished(0, 1.0, "decode", 0)]),
    ("phase", "called mixed, it was prefill", [*two_requests(), *PREFILLS, StepFinished(0, 1.0, "mixed", 9)]),
    ("watermark", "leaves 5 blocks of 6", [*two_requests(watermark_blocks=6), *PREFILLS]),
    (
        "max_tokens",
        "request b has 2 tokens of 1",
        [
            *two_requests()[:2],
            RequestAdded("b", 0.0, 0.0, 3, 1),
            *two_requests()[3:],
            *PREFILLS,
            *TOKENS,
            *DECODE,
            TokensAppended(["a", "b"], [7, 8]),
        ],
    ),
    ("max_model_len", "request a has 7 tokens, the limit is 6", [*two_requests(max_model_len=6), *PREFILLS, *TOKENS]),
    ("reason", "ends for 'bored', not one of", [*PREFILLED, RequestFinished("a", 1.0, "bored"), *FREED]),
    (
        "reason",
        "request a ends for 'eos' without a token",
        [*PREFILLED, *B_DECODES, StepStarted(2, 2.0, 0, 2, 5), RequestFinished("a", 2.0, "eos"), *FREED],
    ),
    (
        "reason",
        "request a ends for 'length' without a token",
        [*PREFILLED, StepStarted(1, 1.0, 0, 2, 5), RequestFinished("a", 1.0, "length"), *FREED],
    ),
    (
        "reason",
        "request a ends for its length at 1 tokens",
        [*two_requests(), *PREFILLS, TOKENS[0], RequestFinished("a", 1.0, "length"), *FREED],
    ),
]


@pytest.mark.parametrize(("law", "message", "events"), BROKEN)
def test_a_broken_law_is_found(law: str, message: str, events: list[AnyEvent]) -> None:
    violations = check(events, complete=False)
    assert {violation.law for violation in violations} <= set(WATCHED_LAWS)
    assert any(v.law == law and re.search(message, v.message) for v in violations), violations


@pytest.mark.parametrize(
    "event",
    [
        RequestAdded(2**63, 1.0, 1.0, 1, 1),
        RequestAdded("a", 1.0, 1.0, 2**64, 1),
        RequestAdded("a", 1.0, 1.0, 1, 10**30),
        StepStarted(2**63, 1.0, 0, 0, 8),
    ],
)
def test_a_number_that_no_engine_counts_to_contradicts_all(event: AnyEvent) -> None:
    (violation,) = check([started(), event])
    assert violation.law == "counts"
    assert "is too large: numbers go up to 9223372036854775807" in violation.message
    with pytest.raises(TraceError, match="is too large"):
        Timeline([started(), event])


def test_held_is_believed_where_it_is_so() -> None:
    held: list[AnyEvent] = [Held("b", "no_slot"), Held("b", "no_budget"), Held("b", "chunk_not_first")]
    assert check([*two_requests(max_num_seqs=1, max_num_batched_tokens=6), *A_PREFILL, *held], complete=False) == []


def test_a_policy_of_ones_own_is_believed_what_the_engine_would_not_say() -> None:
    assert set(POLICIES) == ENGINE_POLICIES
    events = two_requests("examples:Patient")
    assert check([*events, Held("b", "mood")], complete=False) == []
    for untrue in ([Held("b", "no_slot")], [*A_PREFILL, Held("a", "mood")]):
        assert [violation.law for violation in check([*events, *untrue], complete=False)] == ["held"]


def test_what_others_prompts_still_need_is_not_free() -> None:
    """Of two blocks, a has one and needs the other."""
    events = [*two_requests("mixed", num_blocks=2)[:-1], StepStarted(0, 0.0, 2, 0, 2), *A_BEGINS]
    assert check([*events, Held("b", "no_blocks")], complete=False) == []


def test_an_end_by_a_token_may_be_found_out_in_the_step_after() -> None:
    late: list[AnyEvent] = [*DECODE, RequestFinished("a", 1.0, "stop"), *FREED, TokensAppended(["b"], [8])]
    assert check([*PREFILLED, *late, StepFinished(1, 2.0, "decode", 2)], complete=False) == []


def test_the_end_of_a_complete_trace() -> None:
    assert check(PREFILLED, complete=False) == []
    violations = check([*PREFILLED, StepStarted(1, 1.0, 0, 2, 5)])
    assert [(v.law, v.message) for v in violations] == [
        ("ends", "step 1 has not ended"),
        ("ends", "request a has not ended"),
        ("ends", "request b has not ended"),
        ("all_free", "3 of 8 blocks are in use"),
    ]


def test_counting_anew_finds_what_a_wrong_replay_would_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockPool, "release", lambda self, blocks: None)
    laws = {violation.law for violation in check(PUBLISHED_AND_FREED[:-1])}
    assert laws == {"references", "all_free", "ends"}

    def release_twice(self: BlockPool, blocks: list[int]) -> None:
        for block in blocks:
            self.ref_counts[block] = 0

    monkeypatch.setattr(BlockPool, "release", release_twice)
    assert {violation.law for violation in check(PUBLISHED_AND_FREED[:-1])} == {"conservation", "all_free", "ends"}


def test_every_watched_law_is_broken_by_some_case() -> None:
    tested = {law for law, *_ in BROKEN} | {"ends", "all_free", "references", "conservation"}
    assert tested == set(WATCHED_LAWS)


def test_a_violation_says_where_and_which_law() -> None:
    violation = Violation("budget", 3, 57, "9 tokens are scheduled")
    assert str(violation) == f"step 3, event 57: 9 tokens are scheduled. budget: {LAWS['budget']}"
