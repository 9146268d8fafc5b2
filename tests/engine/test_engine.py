"""The loop: when requests are handed over, what time it is, what a failing step costs, what is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import StepError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    SCHEMA_VERSION,
    AnyEvent,
    ChunkScheduled,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
    TraceStarted,
)
from tests.engine.runs import Run
from tests.fakes import HashBackend, expected_completion


class TimedBackend(HashBackend):
    """A hash backend each of whose steps takes a second of a virtual clock."""

    def __init__(self, num_kv_blocks: int, block_size: int) -> None:
        super().__init__(num_kv_blocks, block_size)
        self.clock = VirtualClock()

    def execute(self, batch: ScheduledBatch) -> list[int]:
        self.clock.advance(1.0)
        return super().execute(batch)


def make(backend: HashBackend | None = None, **options: object) -> tuple[Engine, list[AnyEvent]]:
    events: list[AnyEvent] = []
    backend = TimedBackend(16, 4) if backend is None else backend
    clock = backend.clock if isinstance(backend, TimedBackend) else VirtualClock()
    config = Config.from_options(**{"kvcache_block_size": 4, **options})
    return Engine(config, backend, clock=clock, emit=events.append), events


def request(request_id: int, length: int = 4, max_tokens: int = 3, **arrival: float) -> Request:
    tokens = [100 * (request_id + 1) + position for position in range(length)]
    params = SamplingParams(max_tokens=max_tokens)
    return Request(request_id=request_id, prompt_token_ids=tokens, sampling_params=params, **arrival)


def finish(engine: Engine, requests: list[Request]) -> None:
    for _ in engine.run(requests):
        pass


# ---- arrivals and time -------------------------------------------------------------------------------------------


def test_the_pool_is_as_large_as_the_backend_says() -> None:
    engine, events = make(HashBackend(5, 4), num_kvcache_blocks=99)
    assert engine.scheduler.block_manager.num_blocks == 5
    [header] = events
    assert isinstance(header, TraceStarted)
    assert (header.schema, header.backend, header.policy) == (SCHEMA_VERSION, "hash", "prefill_first")
    assert header.config["num_blocks"] == 5


def test_a_policy_of_ones_own_is_used_and_told() -> None:
    class LastComesFirst(Scheduler):
        def schedule(self) -> ScheduledBatch:
            self.waiting.reverse()
            return super().schedule()

    events: list[AnyEvent] = []
    config = Config(kvcache_block_size=4, max_num_batched_tokens=4)
    engine = Engine(config, TimedBackend(16, 4), emit=events.append, scheduler=LastComesFirst)
    finish(engine, [request(0), request(1)])
    assert isinstance(events[0], TraceStarted)
    assert events[0].policy == "LastComesFirst"
    assert [event.request for event in events if isinstance(event, ChunkScheduled)] == [1, 0]


def test_arrivals_by_time_are_handed_over_before_the_first_step_that_starts_then() -> None:
    engine, events = make()
    finish(engine, [request(0, arrival_s=0.0, max_tokens=5), request(1, arrival_s=1.5), request(2, arrival_s=2.0)])
    assert [(e.request, e.time, e.arrival) for e in events if isinstance(e, RequestAdded)] == [
        (0, 0.0, 0.0),
        (1, 2.0, 1.5),
        (2, 2.0, 2.0),
    ]


def test_nothing_to_do_jumps_to_the_next_arrival() -> None:
    engine, events = make()
    finish(engine, [request(0, arrival_s=0.0, max_tokens=2), request(1, arrival_s=10.0, max_tokens=2)])
    times = [(event.step, event.time) for event in events if isinstance(event, StepStarted)]
    assert times == [(0, 0.0), (1, 1.0), (2, 10.0), (3, 11.0)]
    assert [(e.request, e.time) for e in events if isinstance(e, RequestFinished)] == [(0, 2.0), (1, 12.0)]


def test_while_something_runs_there_is_no_waiting() -> None:
    engine, events = make()
    finish(engine, [request(0, arrival_s=0.0, max_tokens=20), request(1, arrival_s=5.5)])
    steps = [event for event in events if isinstance(event, (StepStarted, StepFinished))]
    assert [event.time for event in steps[::2]] == [float(step) for step in range(len(steps) // 2)]
    assert all(event.tokens > 0 for event in steps[1::2])


def test_arrivals_by_step_are_handed_over_before_that_step() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=6, arrival_step=0), request(1, arrival_step=3), request(2, arrival_step=3)])
    before_step: list[list[int]] = [[]]
    for event in events:
        if isinstance(event, RequestAdded):
            assert event.arrival == event.time
            before_step[-1].append(event.request)
        elif isinstance(event, StepFinished):
            before_step.append([])
    assert before_step[:5] == [[0], [], [], [1, 2], []]


def test_nothing_to_do_jumps_to_the_next_arrival_step() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=1, arrival_step=0), request(1, max_tokens=2, arrival_step=7)])
    assert [event.step for event in events if isinstance(event, StepStarted)] == [0, 7, 8]
    assert engine.step_index == 9


def test_requests_are_read_no_further_than_needed() -> None:
    num_read = 0

    def endless() -> Iterator[Request]:
        nonlocal num_read
        while True:
            num_read += 1
            yield request(num_read, max_tokens=1, arrival_s=float(num_read))

    engine, _ = make()
    run = engine.run(endless())
    for _ in range(5):
        next(run)
    assert num_read <= 7


def test_a_second_run_goes_on_where_the_first_ended() -> None:
    engine, events = make()
    finish(engine, [request(0, max_tokens=2)])
    finish(engine, [request(1, max_tokens=2)])
    assert [event.step for event in events if isinstance(event, StepStarted)] == [0, 1, 2, 3]


def test_requests_may_come_and_go_between_steps() -> None:
    engine, events = make()
    run = engine.run([request(0, max_tokens=8)])
    next(run)
    engine.add(request(1, max_tokens=2))
    next(run)
    assert engine.abort(0)
    for _ in run:
        pass
    finished = {event.request: event.reason for event in events if isinstance(event, RequestFinished)}
    assert finished == {0: "aborted", 1: "length"}


# ---- steps -------------------------------------------------------------------------------------------------------


def test_what_a_step_tells() -> None:
    engine, events = make()
    engine.add(request(0, length=6, max_tokens=2))
    first, second = engine.step(), engine.step()
    assert (first.step, first.num_tokens, first.finished, first.error) == (0, 6, [], None)
    assert (second.step, second.num_tokens, second.started_s, second.finished_s) == (1, 1, 1.0, 2.0)
    assert [seq.request_id for seq in second.finished] == [0]
    assert [event for event in events if isinstance(event, (StepStarted, StepFinished))] == [
        StepStarted(0, 0.0, 1, 0, 16),
        StepFinished(0, 1.0, "prefill", 6),
        StepStarted(1, 1.0, 0, 1, 14),
        StepFinished(1, 2.0, "decode", 1),
    ]


def test_an_empty_step_does_not_call_the_backend() -> None:
    backend = TimedBackend(16, 4)
    engine, events = make(backend)
    result = engine.step()
    assert (result.batch.sequences, result.num_tokens, result.finished) == ([], 0, [])
    assert backend.calls == []
    assert events[1:] == [StepStarted(0, 0.0, 0, 0, 16), StepFinished(0, 0.0, "decode", 0)]


def test_closing_closes_the_backend() -> None:
    backend = HashBackend(4, 4)
    make(backend)[0].close()
    assert backend.is_closed


# ---- failures ----------------------------------------------------------------------------------------------------


def test_a_failed_step_fails_its_own_requests_and_the_engine_goes_on() -> None:
    requests = [request(0, max_tokens=6), request(1, max_tokens=6), request(2, arrival_step=1, max_tokens=3)]
    engine, events = make(HashBackend(16, 4, failing_calls={2}))
    errors = [result.error for result in engine.run(requests)]
    assert [step for step, error in enumerate(errors) if error] == [2]
    assert isinstance(errors[2], StepError)
    run = Run(engine, events)
    assert run.finish_reasons == {0: "error", 1: "error", 2: "error"}  # call 2 decoded all three
    finish(engine, [request(3)])
    assert run.num_free_blocks == 16
    assert engine.scheduler.is_finished()


def test_a_failed_prefill_spares_those_that_run() -> None:
    requests = [request(0, max_tokens=6), request(1, length=10, arrival_step=2, max_tokens=3), request(2, max_tokens=2)]
    engine, events = make(HashBackend(16, 4, failing_calls={2}), max_num_batched_tokens=8)
    finish(engine, requests)
    run = Run(engine, events)
    assert run.finish_reasons == {1: "error", 0: "length", 2: "length"}
    assert run.completions == {
        index: expected_completion(requests[index].prompt_token_ids, max_tokens)
        for index, max_tokens in ((0, 6), (2, 2))
    }
    assert run.num_free_blocks == 16


def test_kv_of_a_failed_step_is_never_reused() -> None:
    prompt = list(range(9))
    params = SamplingParams(max_tokens=2)
    requests = [
        Request(request_id=index, prompt_token_ids=prompt, sampling_params=params, arrival_step=index)
        for index in range(2)
    ]
    engine, events = make(HashBackend(16, 4, failing_calls={0}))
    finish(engine, requests)
    run = Run(engine, events)
    assert run.hit_tokens == []
    assert run.completions == {1: expected_completion(prompt, 2)}


def test_a_request_aborted_while_its_step_runs_does_not_fail_with_it() -> None:
    class AbortingBackend(HashBackend):
        def execute(self, batch: ScheduledBatch) -> list[int]:
            engine.abort(0)
            return super().execute(batch)

    engine, events = make(AbortingBackend(16, 4, failing_calls={0}))
    finish(engine, [request(0), request(1)])
    assert Run(engine, events).finish_reasons == {0: "aborted", 1: "error"}


def test_another_exception_of_the_backend_is_not_swallowed() -> None:
    class BrokenBackend(HashBackend):
        def execute(self, batch: ScheduledBatch) -> list[int]:
            raise RuntimeError("broken")

    engine, _ = make(BrokenBackend(16, 4))
    engine.add(request(0))
    with pytest.raises(RuntimeError, match="broken"):
        engine.step()


# ---- silence -----------------------------------------------------------------------------------------------------


def test_a_silent_engine_decides_the_same() -> None:
    requests = [request(index, length=3 + index, max_tokens=9, arrival_step=index) for index in range(6)]
    loud, events = make(HashBackend(8, 4))
    finish(loud, requests)
    silent = Engine(Config(kvcache_block_size=4), HashBackend(8, 4), clock=VirtualClock())
    finish(silent, requests)
    assert Run(loud, events).preemptions
    assert silent.backend.calls == loud.backend.calls
