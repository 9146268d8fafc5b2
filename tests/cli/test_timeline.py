"""A run in few lines: what is told, and what is folded."""

from __future__ import annotations

from nanovllm.cli.demo import what_is_missing
from nanovllm.cli.timeline import Row, summarize_steps
from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent, RequestFinished, StepStarted
from sim import simulate
from sim.workload import WorkloadRequest

CONFIG = Config(kvcache_block_size=4, num_kvcache_blocks=7, max_num_batched_tokens=16)
LOAD = [
    WorkloadRequest(id="long", prompt_len=18, prefix="p", prefix_len=9, max_tokens=8, arrival_step=0),
    WorkloadRequest(id="short", prompt_len=12, prefix="p", prefix_len=9, max_tokens=6, arrival_step=3),
    WorkloadRequest(id="last", prompt_len=2, max_tokens=1, arrival_step=30),
]


def run(load: list[WorkloadRequest], config: Config = CONFIG) -> list[AnyEvent]:
    return simulate(config, load).events


def told(rows: list[Row]) -> list[tuple[str, list[str]]]:
    return [(row.steps, [note.text for note in row.notes]) for row in rows]


def test_each_thing_is_told_and_long_decodes_are_folded() -> None:
    assert told(list(summarize_steps(run(LOAD)))) == [
        ("0", ["long arrives: 18 tokens", "long: a chunk of its prompt, tokens 1–16 of 18"]),
        ("1", ["long: a chunk of its prompt, tokens 17–18 of 18"]),
        ("2", ["long: a token each"]),
        ("3", ["short arrives: 12 tokens", "short: prefix hit, 8 of 12 tokens are cached, 4 computed"]),
        ("4", ["long and short: a token each"]),
        ("5–8", ["short is preempted: long needs a block, 13 computed tokens are lost", "long: 4 tokens each"]),
        ("9", ["long: a token each", "long is finished (length)"]),
        ("10", ["short is back: 8 of its 14 tokens are still cached, 6 are recomputed"]),
        ("11–12", ["short: 2 tokens each"]),
        ("13", ["short: a token each", "short is finished (length)"]),
        ("30", ["last arrives: 2 tokens", "last: its prompt, all 2 tokens", "last is finished (length)"]),
    ]


def test_a_request_may_be_preempted_for_itself() -> None:
    load = [WorkloadRequest(id=index, prompt_len=12, max_tokens=6, arrival_step=0) for index in range(2)]
    notes = [text for _, texts in told(list(summarize_steps(run(load)))) for text in texts]
    assert "1 is preempted: it needs a block, 12 computed tokens are lost" in notes


def test_an_end_between_two_steps_belongs_to_the_later_one() -> None:
    events = run(LOAD[:1])
    place = next(i for i, event in enumerate(events) if isinstance(event, StepStarted) and event.step == 4)
    events.insert(place, RequestFinished("other", 0.0, "aborted"))
    rows = told(list(summarize_steps(events)))
    assert rows[2:4] == [
        ("2–3", ["long: 2 tokens each"]),
        ("4–7", ["other is finished (aborted)", "long: 4 tokens each"]),
    ]


def test_rows_cover_every_step_once() -> None:
    events = run(LOAD)
    rows = list(summarize_steps(events))
    steps = [step for row in rows for step in range(row.first_step, row.last_step + 1)]
    assert steps == [event.step for event in events if isinstance(event, StepStarted)]
    assert all(row.start_s < row.end_s for row in rows)


def test_what_the_demo_is_made_to_show() -> None:
    assert what_is_missing(run(LOAD)) == []
    assert what_is_missing(run(LOAD[2:])) == ["prefix hit between two questions", "chunked prompt", "preemption"]


def test_a_preempted_request_that_finds_its_own_blocks_is_no_hit_between_questions() -> None:
    alone = [WorkloadRequest(id=name, prompt_len=9, max_tokens=12, arrival_step=0) for name in "ab"]
    assert what_is_missing(run(alone)) == ["prefix hit between two questions", "chunked prompt"]
