"""What a comparison counts as the time of a step."""

from __future__ import annotations

import pytest

from nanovllm.trace.events import StepFinished, StepStarted, TraceStarted
from sim.comparison.compare import step_durations


def test_steps_that_compute_nothing_have_no_duration() -> None:
    events = [
        StepStarted(0, 1.0, 0, 0, 9),
        StepFinished(0, 3.0, "prefill", 8),
        StepStarted(1, 3.0, 0, 0, 9),
        StepFinished(1, 4.0, "decode", 1, device=0.75),
        StepStarted(2, 8.0, 0, 0, 9),
        StepFinished(2, 8.0, "decode", 0),
    ]
    assert step_durations(events) == {"prefill step": [2.0], "decode step": [1.0], "decode on device": [0.75]}


@pytest.mark.parametrize(
    ("works_ahead", "expected"), [(False, {"decode step", "decode on device"}), (True, {"decode on device"})]
)
def test_steps_decided_ahead_are_compared_by_the_time_on_the_device(works_ahead: bool, expected: set[str]) -> None:
    header = TraceStarted(2, "cuda", "prefill_first", "", {}, {"lookahead": works_ahead})
    step = [StepStarted(0, 1.0, 0, 1, 5), StepFinished(0, 1.5, "decode", 1, 0.1, 0.4)]
    found = step_durations([header, *step])
    assert set(found) == expected
    assert found["decode on device"] == [0.4]
