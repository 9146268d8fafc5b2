"""What makes a figure legible, for runs of any shape: it draws where it is told to, and no word covers another."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import pytest
from hypothesis import given, settings
from matplotlib.figure import Figure

from nanovllm.trace.events import AnyEvent, Preempted
from tests.trace.runs import Scenario, scenarios
from tests.viz.figures import runs
from tests.viz.figures.drawn import collisions, cut_off, texts_of
from tests.viz.figures.test_measures import simulated
from viz import figures
from viz.figures import KINDS, draw, history_of
from viz.figures.axis import step_axis
from viz.figures.history import Activity
from viz.figures.timeline_image import activity_image

ON_AXES = (
    figures.timeline,
    figures.block_map,
    figures.kv_use,
    figures.queue_lengths,
    figures.step_tokens,
    figures.prompt_progress,
    figures.queue_in_hand,
    figures.block_handover,
)


@pytest.mark.parametrize("function", ON_AXES)
def test_a_figure_is_drawn_in_the_axes_that_are_given(function: Callable[..., Figure]) -> None:
    before = dict(matplotlib.rcParams)
    figure = Figure(figsize=(10, 8))
    left, right = figure.subplots(1, 2)
    assert function(runs.a_bit_of_everything(), ax=right) is figure
    assert not left.has_data()
    assert not left.texts
    assert right.patches or right.collections or right.lines
    assert dict(matplotlib.rcParams) == before, "no global state is touched"


def test_figures_of_several_panels_are_drawn_in_the_figure_that_is_given() -> None:
    events = runs.a_bit_of_everything()
    for function in (figures.latency, lambda e, figure: figures.compare(e, e, figure=figure)):
        figure = Figure(figsize=(12, 8))
        assert function(events, figure=figure) is figure
        assert len(figure.axes) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [runs.a_bit_of_everything, runs.preempted_from_the_tail, runs.shared_blocks_stay, simulated],
    ids=["everything", "tail", "shared", "simulated"],
)
def test_no_word_covers_another_or_is_cut_off(kind: str, make: Callable[[], list[AnyEvent]]) -> None:
    events = make()
    if kind in ("queue", "handover") and not any(isinstance(event, Preempted) for event in events):
        pytest.skip("nobody is preempted in this run")
    figure = draw(events, kind)
    assert collisions(figure) == []
    assert cut_off(figure) == []


def test_a_large_run_becomes_an_image_in_which_rare_events_survive() -> None:
    history = history_of(simulated(num_blocks=20, num_requests=60))
    axis = step_axis(history)
    rows = list(range(len(history.requests)))
    codes = {activity: code for code, activity in enumerate(Activity, start=1)}
    exact = activity_image(history, axis, rows, len(axis))
    coarse = activity_image(history, axis, rows, 20)
    for y, life in enumerate(history.requests):
        for span in life.spans(len(history.steps)):
            assert (exact[y, span.first : span.last + 1] == codes[span.activity]).all() or life.preemptions
        assert codes[Activity.PREFILL] in coarse[y] or codes[Activity.PREEMPTED] in coarse[y]
    assert texts_of(draw(history_events(60), "timeline")) >= {"60 requests, in order of arrival"}


def history_events(num_requests: int) -> list[AnyEvent]:
    return simulated(num_blocks=20, num_requests=num_requests)


@settings(max_examples=12)
@given(scenarios())
def test_any_run_can_be_drawn(scenario: Scenario) -> None:
    events = scenario.run()
    if not history_can_be_drawn(events):
        return
    history = history_of(events)
    kinds = [kind for kind in KINDS if kind not in ("queue", "handover", "progress")]
    if any(isinstance(event, Preempted) for event in events):
        kinds += ["queue", "handover", "progress"]
    figure = draw(events, kinds)
    assert len(figure.axes) == len(kinds) + 3, "one each, four for the latencies"
    shown = [life for life in history.requests if life.spans(len(history.steps))]
    assert len(figure.axes[0].get_yticks()) == len(shown)


def history_can_be_drawn(events: list[AnyEvent]) -> bool:
    return any(event.__struct_config__.tag == "step_started" for event in events)
