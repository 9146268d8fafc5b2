"""The three pictures of the walkthrough, from runs of the real scheduler: every number in them is replayed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nanovllm.errors import UserError
from tests.trace.runs import request
from tests.viz.figures import runs
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import (
    block_handover,
    block_handover_data,
    prompt_progress,
    prompt_progress_data,
    queue_in_hand,
    queue_in_hand_data,
)
from viz.figures.progress import ProgressStep

# ---- 64 tokens = 32 reused + 20 + 12 ---------------------------------------------------------------------------------


def test_64_tokens_are_32_reused_and_20_and_12() -> None:
    data = prompt_progress_data(runs.reused_and_chunked(), "B")
    assert (data.num_tokens, data.num_reused_tokens, data.block_size) == (64, 32, 16)
    assert data.steps == (ProgressStep(5, 32, 20, 12), ProgressStep(6, 52, 12, 0))
    assert data.block_table == (0, 1, 4, 5), "two blocks of A's, two of its own, all from the first allocation"


def test_the_picture_says_so() -> None:
    figure = prompt_progress(runs.reused_and_chunked(), "B")
    texts = texts_of(figure)
    assert "Request B: 64 tokens = 32 reused + 20 + 12" in texts
    assert {"32", "20", "12", "num_cached_tokens\n32 → 52", "num_cached_tokens\n52 → 64"} <= texts


@pytest.mark.parametrize(("length", "last_numbers"), [(61, [50, 61]), (65, [60, 65]), (70, [60, 70])])
def test_the_numbers_below_a_prompt_keep_apart(length: int, last_numbers: list[int]) -> None:
    events = runs.run([request("A", runs.prompt("A", length), 1)], block_size=10, num_blocks=8, budget=40)
    figure = prompt_progress(events, "A")
    assert figure.axes[0].get_xticks().tolist()[-2:] == last_numbers
    assert flaws(figure) == []


def test_progress_of_a_request_that_was_preempted() -> None:
    events = runs.a_bit_of_everything()
    first, second, third = (prompt_progress_data(events, "C", admission) for admission in range(3))
    assert (first.num_tokens, first.num_reused_tokens, first.steps) == (9, 0, (ProgressStep(3, 0, 9, 0),))
    assert (second.num_tokens, second.num_reused_tokens) == (12, 0), "its generated tokens are computed again"
    assert (third.num_tokens, third.num_reused_tokens) == (13, 8), "it finds its own blocks"
    with pytest.raises(UserError, match="no prefill 3 of request 'C'"):
        prompt_progress_data(events, "C", 3)


def test_without_a_name_it_is_the_first_request_in_chunks() -> None:
    assert prompt_progress_data(runs.a_bit_of_everything()).request == "A"
    assert prompt_progress_data(runs.preempted_from_the_tail()).request == "A"


def test_unknown_request() -> None:
    with pytest.raises(UserError, match="no prefill 0 of request 'Z'"):
        prompt_progress(runs.reused_and_chunked(), "Z")


def test_a_trace_cut_between_two_chunks() -> None:
    events = runs.reused_and_chunked()
    cut = next(i for i, event in enumerate(events) if getattr(event, "remaining", None) == 12)
    figure = prompt_progress(events[: cut + 1], "B")
    assert "Request B: 64 tokens = 32 reused + 20 + 12 left" in texts_of(figure)
    assert any(text.startswith("incomplete: the trace ends within step 5") for text in texts_of(figure))


# ---- A in hand, D from the tail --------------------------------------------------------------------------------------


def test_a_is_in_hand_while_d_is_taken_from_the_tail() -> None:
    data = queue_in_hand_data(runs.preempted_from_the_tail())
    assert (data.step, data.order) == (1, ("A", "B", "C", "D"))
    moves = [(f.scheduled, f.in_hand, f.running, f.waiting, f.num_free_blocks) for f in data.frames]
    assert moves == [
        ((), None, ("A", "B", "C", "D"), (), 0),
        ((), "A", ("B", "C", "D"), (), 0),
        ((), "A", ("B", "C"), ("D",), 1),
        (("A",), None, ("B", "C"), ("D",), 0),
        ((), None, ("A", "B", "C"), ("D",), 0),
    ]
    assert [frame.preempted for frame in data.frames] == [None, None, "D", None, None]


def test_those_before_the_one_in_hand_are_scheduled() -> None:
    data = queue_in_hand_data(runs.shared_blocks_stay())
    frame = next(frame for frame in data.frames if frame.in_hand is not None)
    assert (frame.scheduled, frame.in_hand, frame.running) == (("E", "A"), "B", ("C",))


def test_the_last_one_preempts_itself() -> None:
    events = runs.shared_blocks_stay()
    queues, blocks = queue_in_hand_data(events, 15), block_handover_data(events, 15)
    assert [(f.scheduled, f.in_hand, f.running, f.preempted) for f in queues.frames] == [
        ((), None, ("E", "B"), None),
        (("E",), "B", (), None),
        (("E",), None, (), "B"),
        ((), None, ("E",), None),
    ]
    assert (blocks.request, blocks.victims, blocks.taken) == ("B", ("B",), ())
    assert texts_of(block_handover(events, 15)) >= {"Step 15: B finds no block and no one else to preempt"}
    assert texts_of(queue_in_hand(events, 15)) >= {"B preempts itself: no one else is left"}


@pytest.mark.parametrize("data_of", [queue_in_hand_data, block_handover_data])
def test_a_step_without_preemption(data_of: Callable[..., object]) -> None:
    with pytest.raises(UserError, match="step 0 preempts no request; those that do: 1"):
        data_of(runs.preempted_from_the_tail(), 0)
    with pytest.raises(UserError, match="no step preempts a request"):
        data_of(runs.reused_and_chunked())


# ---- A gets D's block ------------------------------------------------------------------------------------------------


def test_a_gets_the_block_that_the_preemption_of_d_frees() -> None:
    data = block_handover_data(runs.preempted_from_the_tail())
    assert (data.step, data.request, data.victims) == (1, "A", ("D",))
    assert (data.freed, data.kept, data.taken, data.evicted) == ((3,), (), (3,), ())
    before, preempted, after = data.frames
    assert (before.tables, before.free, before.waiting) == ({"A": (0,), "B": (1,), "C": (2,), "D": (3,)}, (), ())
    assert (preempted.tables["D"], preempted.free, preempted.waiting) == ((), (3,), ("D",))
    assert (after.tables["A"], after.free, after.waiting) == ((0, 3), (), ("D",))


def test_shared_blocks_stay_with_the_others() -> None:
    data = block_handover_data(runs.shared_blocks_stay(), 7)
    assert (data.request, data.victims) == ("B", ("C",))
    assert (data.freed, data.kept, data.taken, data.evicted) == ((4,), (0,), (4,), (4,))
    assert data.frames[1].remark == "frees block 4; others still hold block 0"
    assert data.frames[2].remark == "its cached content is lost"


def test_the_pictures_tell_the_same() -> None:
    events = runs.preempted_from_the_tail()
    assert texts_of(queue_in_hand(events)) >= {
        "A is taken from the head: in hand, no longer in the queue. It needs a block",
        "D is taken from the tail and preempted, so that A can go on",
        "A gets block 3 and is scheduled",
    }
    assert texts_of(block_handover(events)) >= {
        "Step 1: A gets what the preemption of D frees",
        "none is free",
        "frees block 3",
        "A takes block 3",
    }
