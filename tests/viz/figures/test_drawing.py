"""What makes a figure legible, for runs of any shape: it draws where it is told to, and no word covers another."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.figure import Figure

from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, StepStarted
from tests.trace.runs import Scenario, request, scenarios
from tests.viz.figures import runs
from tests.viz.figures.drawn import flaws, texts_of
from tests.viz.figures.test_measures import simulated
from viz import figures
from viz.figures import KINDS, draw, history_of, timeline_image
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
    assert flaws(figure) == []


def test_a_large_run_becomes_an_image_in_which_rare_events_survive() -> None:
    events = simulated(num_blocks=20, num_requests=60)
    history = history_of(events)
    axis = step_axis(history)
    rows = list(range(len(history.requests)))
    codes = {activity: code for code, activity in enumerate(Activity, start=1)}
    exact = activity_image(history, axis, rows, len(axis))
    coarse = activity_image(history, axis, rows, 20)
    for y, life in enumerate(history.requests):
        for span in life.spans(len(history.steps)):
            assert (exact[y, span.first : span.last + 1] == codes[span.activity]).all() or life.preemptions
        assert codes[Activity.PREFILL] in coarse[y] or codes[Activity.PREEMPTED] in coarse[y]
    assert texts_of(draw(events, "timeline")) >= {"60 requests, in order of arrival"}


def test_an_image_of_very_many_requests_has_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    history = history_of(simulated(num_requests=60))
    (whole,) = draw(history, "timeline").axes[0].images
    monkeypatch.setattr(timeline_image, "MAX_ROWS", 20)
    (some,) = draw(history, "timeline").axes[0].images
    assert (some.get_array() == whole.get_array()[1::3]).all(), "the middle one of each three"
    assert some.get_extent() == whole.get_extent()


def test_pauses_that_are_left_out_are_told() -> None:
    events = runs.run([request(index, range(3), 1, arrival_step=3 * index) for index in range(800)], num_blocks=4)
    texts = texts_of(draw(events, "queues"))
    assert any(text.endswith("; a column averages up to 2 steps, 799 short pauses left out") for text in texts)


def test_the_key_of_a_timeline_knows_every_mark() -> None:
    events = runs.a_bit_of_everything()
    assert {"prefix hit", "prefill", "decode", "preempted", "finished"} <= texts_of(draw(events, "timeline"))
    assert "finished" not in texts_of(draw(events, "timeline", steps=(0, 3))), "nobody has, by then"
    assert "finished" not in texts_of(draw(simulated(num_requests=60), "timeline")), "an image has no marks"


@settings(max_examples=20)
@given(scenarios(), st.sets(st.sampled_from(KINDS), min_size=1, max_size=3), st.booleans())
def test_any_run_can_be_drawn(scenario: Scenario, kinds: set[str], by_time: bool) -> None:
    events = scenario.run()
    chosen = [kind for kind in KINDS if kind in kinds and _has_something(events, kind)]
    if not chosen:
        return
    figure = draw(events, chosen, by_time=by_time)
    assert len(figure.axes) == len(chosen) + 3 * ("latency" in chosen), "one each, four for the latencies"
    assert flaws(figure) == []
    if chosen[0] == "timeline":
        history = history_of(events)
        shown = [life for life in history.requests if life.spans(len(history.steps))]
        assert len(figure.axes[0].get_yticks()) == len(shown)


def _has_something(events: list[AnyEvent], kind: str) -> bool:
    needed = {"queue": Preempted, "handover": Preempted, "progress": ChunkScheduled}.get(kind, StepStarted)
    return any(isinstance(event, needed) for event in events)
