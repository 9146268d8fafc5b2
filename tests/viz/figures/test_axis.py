"""Where steps stand on the axis, in steps and in seconds."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, StepFinished, StepStarted
from tests.trace.runs import request
from tests.viz.figures import runs
from viz.figures import history_of
from viz.figures.axis import StepAxis, common_bounds, step_axis
from viz.figures.bands import columns_of


def with_a_pause() -> list[AnyEvent]:
    """Steps 0 and 1 take 3 ms and 1 ms; then nothing until step 10."""
    return runs.run([request("A", range(3), 2), request("B", range(3, 6), 3, arrival_step=10)], num_blocks=4)


def test_steps_are_one_wide_and_centred_on_their_number() -> None:
    axis = step_axis(history_of(with_a_pause()))
    assert axis.left.tolist() == [-0.5, 0.5, 9.5, 10.5, 11.5]
    assert axis.right.tolist() == [0.5, 1.5, 10.5, 11.5, 12.5]
    assert (axis.bounds, axis.label) == ((-0.5, 12.5), "step")


def test_by_time_a_step_is_as_wide_as_it_lasts() -> None:
    axis = step_axis(history_of(with_a_pause()), by_time=True)
    assert axis.left == pytest.approx([0, 3, 4, 7, 8])
    assert axis.right == pytest.approx([3, 4, 7, 8, 9])
    assert axis.label == "time, ms"
    assert axis.at_time(0.0065) == pytest.approx(6.5)


def test_some_steps() -> None:
    history = history_of(with_a_pause())
    assert list(step_axis(history, (1, 10)).positions) == [1, 2]
    assert list(step_axis(history, (10, None)).positions) == [2, 3, 4]
    assert list(step_axis(history, (1, 1)).positions) == [1]
    with pytest.raises(UserError, match="there is no such step: the trace has steps 0 to 12"):
        step_axis(history, (2, 9))


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("far", [2**51, 2**62])
def test_an_axis_is_never_without_width_however_far_out_it_is(far: int, by_time: bool) -> None:
    events = []
    for event in runs.run([request("A", range(3), 1)], num_blocks=4):
        event = msgspec.structs.replace(event, step=far) if isinstance(event, (StepStarted, StepFinished)) else event
        event = msgspec.structs.replace(event, time=float(far)) if hasattr(event, "time") else event
        events.append(event)
    axis = step_axis(history_of(events), by_time=by_time)
    assert axis.bounds[0] < axis.bounds[1]


def test_samples_know_where_no_step_ran() -> None:
    axis = step_axis(history_of(with_a_pause()))
    assert axis.samples(100).tolist() == [0, 1, *[-1] * 8, 2, 3, 4]
    assert axis.samples(3).tolist() == [-1, -1, 2], "the middles of thirds stand at 1.67, 6 and 10.33"


def test_equal_bounds() -> None:
    history = history_of(with_a_pause())
    early, late = common_bounds([step_axis(history, (0, 1)), step_axis(history, (10, 11))])
    assert early.bounds == late.bounds == (-0.5, 11.5)
    assert early.samples(12).tolist() == [0, 1, *[-1] * 10]


def test_long_runs_are_averaged_into_columns() -> None:
    history = history_of(runs.a_bit_of_everything())
    axis = step_axis(history)
    columns = columns_of(axis, limit=5)
    values = np.arange(len(history.steps))
    assert columns.is_averaged
    assert len(columns.starts) == 5
    means = columns.mean(values)
    assert (means * np.diff(np.append(columns.starts, len(axis)))).sum() == pytest.approx(values.sum())
    assert not columns_of(axis).is_averaged
    assert columns_of(axis).mean(values).tolist() == values.tolist()


def axis_of_time(paused_and_lasted: list[tuple[int, int]]) -> StepAxis:
    """Steps that last some whole seconds, each after a pause or right after the one before."""
    paused, lasted = np.array(paused_and_lasted, dtype=np.float64).T
    right = np.cumsum(paused + lasted)
    left = right - lasted
    return StepAxis(range(len(left)), left, right, "time, s", True, 1.0, (float(left[0]), float(right[-1])))


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 50]), st.integers(1, 9)), min_size=1).map(axis_of_time),
    st.integers(1, 12),
    st.data(),
)
def test_a_column_is_as_wide_as_its_steps_and_paints_no_pause(axis: StepAxis, limit: int, data: st.DataObject) -> None:
    num_pauses = int((axis.gaps > 0).sum())
    limit = max(limit, num_pauses)
    columns = columns_of(axis, limit)
    widths = axis.right - axis.left
    assert columns.num_hidden_gaps == 0
    assert (columns.right - columns.left).tolist() == np.add.reduceat(widths, columns.starts).tolist()
    values = np.array(data.draw(st.lists(st.integers(0, 99), min_size=len(axis), max_size=len(axis))))
    painted = (columns.mean(values) * (columns.right - columns.left)).sum()
    assert painted == pytest.approx((values * widths).sum()), "what is drawn weighs by time"
    assert len(columns.starts) <= limit + num_pauses


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 50]), st.integers(1, 9)), min_size=1).map(axis_of_time),
    st.integers(1, 12),
)
def test_of_more_pauses_than_columns_only_long_ones_are_drawn(axis: StepAxis, limit: int) -> None:
    columns = columns_of(axis, limit)
    drawn = columns.left[1:] - columns.right[:-1]
    num_pauses = int((axis.gaps > 0).sum())
    assert (drawn >= 0).all()
    assert int((drawn > 0).sum()) == num_pauses - columns.num_hidden_gaps <= limit
    if columns.num_hidden_gaps:
        width = (axis.bounds[1] - axis.bounds[0]) / limit
        assert sorted(drawn[drawn > 0]) == sorted(axis.gaps[axis.gaps > width])
    assert len(columns.starts) <= 2 * limit
    assert (columns.left[0], columns.right[-1]) == axis.bounds


def test_columns_are_counted_out_anew_after_a_pause() -> None:
    columns = columns_of(axis_of_time([(0, 3), (0, 1), (6, 3), (0, 1), (0, 1)]), limit=1)
    assert columns.starts.tolist() == [0, 2]
    assert columns.left.tolist() == [0, 10]
    assert columns.right.tolist() == [4, 15]
    assert columns.mean(np.array([4, 0, 5, 0, 0])) == pytest.approx([3, 3]), "weighed by 3 and 1, and 3, 1 and 1 s"


def test_outlines_are_broken_where_no_step_ran() -> None:
    columns = columns_of(step_axis(history_of(with_a_pause())))
    x, y = columns.outline(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert x.tolist()[:6] == [-0.5, 0.5, 0.5, 0.5, 1.5, 1.5]
    assert [str(value) for value in y[:9]] == ["1.0", "1.0", "1.0", "2.0", "2.0", "nan", "3.0", "3.0", "3.0"]
    assert columns.at(np.array([0.0, 5.0, 10.0]), np.arange(5.0)).tolist()[::2] == [0.0, 2.0]
