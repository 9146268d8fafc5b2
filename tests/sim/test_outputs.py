"""A recorded run, on any backend, simulated: the same decisions, to the last event."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import RequestError, TraceError, UserError
from nanovllm.trace.events import AnyEvent, RequestAdded, RequestFinished, StepStarted, TokensAppended, TraceStarted
from nanovllm.trace.jsonl import read_trace
from sim import simulate
from sim.outputs import RecordedOutputs
from sim.workload import WorkloadRequest, to_requests
from tests.fakes import DeferredHashBackend, HashBackend
from tests.trace.damaged import damaged_traces

CONFIG = Config(
    kvcache_block_size=4, num_kvcache_blocks=24, max_num_batched_tokens=32, max_num_seqs=5, eos=(3, 4), max_model_len=96
)


def decisions(events: list[AnyEvent]) -> list[AnyEvent]:
    """A trace without its header and its times."""
    return [
        msgspec.structs.replace(event, **dict.fromkeys(event.TIME_FIELDS, 0.0))
        for event in events
        if not isinstance(event, TraceStarted)
    ]


def record(
    workload: list[WorkloadRequest],
    *,
    vocab_size: int = 16,
    stop_conditions: dict[object, Callable[[Sequence], bool]] | None = None,
    abort_after: dict[int, object] | None = None,
    failing_calls: tuple[int, ...] = (),
    lookahead: bool = False,
) -> list[AnyEvent]:
    """Run a workload on another backend, whose tokens depend on the KV it sees and end requests now and then.
    ``lookahead``: it is given steps early."""
    events: list[AnyEvent] = []
    backend = (DeferredHashBackend if lookahead else HashBackend)(
        CONFIG.num_kvcache_blocks, CONFIG.kvcache_block_size, vocab_size=vocab_size, failing_calls=failing_calls
    )
    engine = Engine(CONFIG, backend, clock=VirtualClock(), emit=events.append)
    requests: list[Request] = [
        msgspec.structs.replace(request, stop_condition=(stop_conditions or {}).get(request.request_id))
        for request in to_requests(workload)
    ]
    for result in engine.run(requests):
        request_id = (abort_after or {}).get(result.step)
        if isinstance(request_id, (str, int)):
            engine.abort(request_id)
    return events


def reasons(events: list[AnyEvent]) -> list[str]:
    return [event.reason for event in events if isinstance(event, RequestFinished)]


@st.composite
def workloads(draw: st.DrawFn) -> list[WorkloadRequest]:
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 12), st.booleans(), st.booleans()),
            min_size=1,
            max_size=8,
        )
    )
    return [
        WorkloadRequest(
            id=i,
            prompt_len=prompt_len,
            prefix="shared" if has_prefix else None,
            prefix_len=prompt_len // 2 if has_prefix else None,
            max_tokens=max_tokens,
            arrival_step=step,
            ignore_eos=ignore_eos,
        )
        for i, (prompt_len, max_tokens, step, has_prefix, ignore_eos) in enumerate(sorted(shapes, key=lambda s: s[2]))
    ]


@given(workload=workloads(), lookahead=st.booleans())
def test_a_simulation_repeats_the_decisions_of_a_recorded_run(workload: list[WorkloadRequest], lookahead: bool) -> None:
    recorded = record(workload, lookahead=lookahead)
    repeated = simulate(replace(CONFIG, lookahead=lookahead), workload, outputs=RecordedOutputs(recorded))
    assert decisions(repeated.events) == decisions(recorded)


@pytest.mark.parametrize("lookahead", [False, True])
def test_all_ways_to_end_are_repeated(lookahead: bool) -> None:
    workload = [
        WorkloadRequest(id="eos", prompt_len=9, max_tokens=60),
        WorkloadRequest(id="ignores it", prompt_len=9, max_tokens=20, ignore_eos=True),
        WorkloadRequest(id="stop text", prompt_len=9, max_tokens=20, ignore_eos=True),
        WorkloadRequest(id="stop id", prompt_len=9, max_tokens=30, ignore_eos=True, stop_token_ids=list(range(5, 8))),
        WorkloadRequest(id="aborted", prompt_len=9, max_tokens=30, ignore_eos=True),
    ]
    recorded = record(
        workload,
        stop_conditions={"stop text": lambda seq: seq.num_completion_tokens == 7},
        abort_after={4: "aborted"},
        lookahead=lookahead,
    )
    assert sorted(reasons(recorded)) == ["aborted", "eos", "length", "stop", "stop"]
    outputs = RecordedOutputs(recorded)
    assert outputs.eos_token_ids == (3, 4)
    config = Config(**{**options(CONFIG), "eos": -1, "lookahead": lookahead})
    repeated = simulate(config, workload, outputs=outputs)
    assert decisions(repeated.events) == decisions(recorded)


def test_a_recorded_run_brings_its_limit_unless_another_is_chosen() -> None:
    workload = [WorkloadRequest(id="a", prompt_len=9, max_tokens=5)]
    outputs = RecordedOutputs(record(workload))
    for chosen, expected in ((-1, CONFIG.max_model_len), (50, 50)):
        [started, *_] = simulate(replace(CONFIG, max_model_len=chosen), workload, outputs=outputs).events
        assert isinstance(started, TraceStarted)
        assert started.config["max_model_len"] == expected


def options(config: Config) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def test_recorded_answers_can_be_run_under_other_options() -> None:
    workload = [WorkloadRequest(id=i, prompt_len=9, max_tokens=30) for i in range(6)]
    recorded = record(workload, abort_after={2: 5})
    other = Config(kvcache_block_size=16, num_kvcache_blocks=200, max_num_batched_tokens=9, max_num_seqs=2)
    repeated = simulate(other, workload, outputs=RecordedOutputs(recorded))

    def answers(events: list[AnyEvent]) -> dict[object, list[int]]:
        tokens: dict[object, list[int]] = {}
        for event in events:
            if isinstance(event, TokensAppended):
                for request, token in zip(event.requests, event.tokens, strict=True):
                    tokens.setdefault(request, []).append(token)
        return tokens

    completed = {i: answers(recorded)[i] for i in range(5)}
    assert {i: answers(repeated.events)[i] for i in range(5)} == completed
    recorded_steps, repeated_steps = (
        sum(isinstance(event, StepStarted) for event in events) for events in (recorded, repeated.events)
    )
    assert repeated_steps > recorded_steps


def test_what_cannot_be_repeated_is_refused() -> None:
    workload = [
        WorkloadRequest(id="a", prompt_len=9, max_tokens=5),
        WorkloadRequest(id="b", prompt_len=9, max_tokens=5),
    ]
    recorded = record(workload)
    last = max(i for i, event in enumerate(recorded) if isinstance(event, RequestFinished))
    with pytest.raises(TraceError, match=r"^run\.jsonl: request '.' did not end \(the trace is cut short\)"):
        RecordedOutputs(recorded[:last], "run.jsonl")
    with pytest.raises(TraceError, match="request 'a' failed: only a run that came to its end can be repeated"):
        RecordedOutputs(record(workload, failing_calls=(0,)))
    with pytest.raises(TraceError, match="two requests are called 'a': answers are told by id"):
        RecordedOutputs([*recorded, RequestAdded("a", 1e9, 1e9, 9, 5)])
    with pytest.raises(RequestError, match="request 'c' is not in the recorded run: no answer is known"):
        simulate(CONFIG, [WorkloadRequest(id="c", prompt_len=9, max_tokens=5)], outputs=RecordedOutputs(recorded))


@pytest.mark.parametrize("changes", [{"max_tokens": 6}, {"ignore_eos": True}], ids=str)
def test_an_answer_that_does_not_go_far_enough_is_refused(changes: dict[str, Any]) -> None:
    workload = [WorkloadRequest(id=i, prompt_len=9, max_tokens=5) for i in range(9)]
    recorded = record(workload)
    assert {event.reason for event in recorded if isinstance(event, RequestFinished)} == {"eos", "length"}
    longer = [msgspec.structs.replace(request, **changes) for request in workload]
    problem = rf"request \d may go on to max_tokens={longer[0].max_tokens}, but run\.jsonl tells no more than \d tokens"
    with pytest.raises(RequestError, match=problem):
        simulate(CONFIG, longer, outputs=RecordedOutputs(recorded, "run.jsonl"))


@given(data=damaged_traces())
def test_a_damaged_recording_is_refused_or_repeated(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("damaged") / "run.jsonl"
    path.write_bytes(data)
    workload = [WorkloadRequest(id=0, prompt_len=5, max_tokens=9), WorkloadRequest(id=1, prompt_len=4, max_tokens=10)]
    config = Config(num_kvcache_blocks=4, kvcache_block_size=4)
    with suppress(UserError):
        simulate(config, workload, outputs=RecordedOutputs(read_trace(path).events, path))
