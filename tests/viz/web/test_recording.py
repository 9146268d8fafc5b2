"""The tables of a page hold, for every step, the state of the one replayer."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, BlocksAllocated, BlocksHashed, DecodeScheduled, StepFinished
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.timeline import Timeline
from tests.trace.damaged import wrong_values
from tests.trace.runs import Scenario, preempting_run, scenarios
from tests.viz.web.states import Tables, replayed
from tests.viz.web.traces import as_trace, tight_run
from viz.web.recording import AFTERWARDS, CUT, WHOLE, record


def assert_same_states(events: list[AnyEvent]) -> None:
    tables, timeline = Tables(record(as_trace(events))), Timeline(events)
    steps = tables.column("frame.step")
    kinds = tables.column("frame.kind")
    for frame, step in enumerate(steps):
        if kinds[frame] == AFTERWARDS or (frame + 1 < len(steps) and kinds[frame + 1] == AFTERWARDS):
            continue  # the timeline counts what follows the last step to that step
        assert tables.state(frame) == replayed(timeline.at(step))


@settings(max_examples=60)
@given(scenarios())
def test_every_step_of_every_run(scenario: Scenario) -> None:
    assert_same_states(scenario.run())


def test_any_value_in_place_of_any_other_makes_a_page_or_one_line(tmp_path: Path) -> None:
    path, problems = tmp_path / "run.jsonl", set()
    for data in wrong_values():
        path.write_bytes(data)
        try:
            json.dumps(record(read_trace(path)))
        except UserError as error:
            problems.add(str(error))
    assert problems
    assert not any("\n" in problem for problem in problems)
    assert any("is too large to be shown, numbers go up to" in problem for problem in problems)


def test_a_decode_of_nobody_is_not_worth_a_sentence() -> None:
    events = tight_run()
    place = next(index for index, event in enumerate(events) if isinstance(event, StepFinished))
    nobody = [*events[:place], DecodeScheduled([]), *events[place:]]
    tables, others = (record(as_trace(run))["words"] for run in (events, nobody))
    assert tables == others


def test_a_run_in_which_everything_happens() -> None:
    events = tight_run()
    assert_same_states(events)
    jumps = {kind["name"] for kind in record(as_trace(events))["words"]["kinds"]}
    assert {"preempted", "held", "hit", "chunk", "evicted", "finished"} <= jumps


def test_totals_are_those_of_the_trace() -> None:
    from nanovllm.trace.metrics import compute_metrics

    events = tight_run()
    tables, metrics = Tables(record(as_trace(events))), compute_metrics(events)
    assert tables.column("frame.hit_tokens")[-1] == metrics.hit_tokens
    assert tables.column("frame.looked_up_tokens")[-1] == metrics.looked_up_tokens
    assert tables.column("frame.preemptions")[-1] == metrics.num_preemptions
    assert tables.column("frame.generated_tokens")[-1] == metrics.output_tokens
    computed = sum(tables.column("frame.prefill_tokens")) + sum(tables.column("frame.decode_tokens"))
    assert computed == metrics.computed_tokens


def test_what_a_request_does_step_by_step() -> None:
    tables = Tables(record(as_trace(preempting_run())))
    assert [tables.activity(1, frame) for frame in range(11)] == [
        *["prefill", "decode", "decode", "decode", "preempted"],
        *["held", "held", "held", "held", "prefill", "decode"],
    ]


def test_a_trace_without_steps_has_one_frame() -> None:
    header_only = tight_run()[:1]
    tables = Tables(record(as_trace(header_only)))
    assert tables.column("frame.kind") == [AFTERWARDS]
    assert tables.state(0)["freeBlocks"] == list(range(16))


@pytest.mark.parametrize("cut", range(2, 120, 7))
def test_a_trace_may_be_cut_anywhere(cut: int) -> None:
    events = tight_run()[:cut]
    recorded = record(as_trace(events))
    assert recorded["problem"].startswith("run.jsonl: the trace ends")
    is_whole = isinstance(events[-1], StepFinished)
    last = Tables(recorded).column("frame.kind")[-1]
    assert (last == WHOLE) == is_whole
    if not is_whole:
        assert last in (CUT, AFTERWARDS)


def test_a_trace_that_contradicts_itself_is_shown_up_to_there() -> None:
    events = tight_run()
    index = [i for i, event in enumerate(events) if isinstance(event, BlocksAllocated)][5]
    events[index] = msgspec.structs.replace(events[index], blocks=[15, 15])
    recorded = record(as_trace(events))
    assert "blocks [15, 15] are allocated" in recorded["problem"]
    tables = Tables(recorded)
    num_frames = len(tables.column("frame.step"))
    assert 0 < num_frames < 20
    assert len(recorded["ids"]) == len(tables.column("request.added"))
    for column in ("request.added", "request.ended", "request.first_token", "holding.start", "holding.end"):
        assert max(tables.column(column)) < num_frames
    assert tables.state(num_frames - 1) == replayed(Timeline(events[:index]).at(num_frames - 1))


def test_a_hash_that_is_none_is_named() -> None:
    events = tight_run()
    index = next(i for i, event in enumerate(events) if isinstance(event, BlocksHashed))
    hashes = ["no hash"] * len(events[index].hashes)  # type: ignore[union-attr]
    events[index] = msgspec.structs.replace(events[index], hashes=hashes)
    problem = record(as_trace(events))["problem"]
    assert problem == f"run.jsonl:{index + 1}: 'no hash' is no hash: a hash has 16 hex digits"


def test_the_same_trace_makes_the_same_tables() -> None:
    assert record(as_trace(tight_run())) == record(as_trace(tight_run()))
