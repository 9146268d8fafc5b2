"""``run_requests``: requests with ids and arrivals of their own; and the metrics of each request."""

from __future__ import annotations

from typing import Any

import pytest

from nanovllm.engine.request import Request
from nanovllm.engine.steps import StepResult
from nanovllm.errors import RequestError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    Preempted,
    RequestAdded,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from tests.llm.support import assert_nothing_left, make_generator, tokenizer


def make_request(request_id: RequestId, num_prompt_tokens: int = 3, max_tokens: int = 2, **arrival: Any) -> Request:
    first = len(str(request_id)) * 10
    return Request(
        request_id=request_id,
        prompt_token_ids=range(first, first + num_prompt_tokens),
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        **arrival,
    )


def test_requests_arrive_before_their_step_and_results_come_in_order() -> None:
    steps: list[StepResult] = []
    generator = make_generator()
    requests = [
        make_request("a", max_tokens=9, arrival_step=0),
        make_request("bb", max_tokens=1, arrival_step=2),
        make_request("ccc", max_tokens=1, arrival_step=20),
    ]
    outputs = generator.run_requests(iter(requests), on_step=steps.append)
    assert [output.request_id for output in outputs] == ["a", "bb", "ccc"]
    finished = {seq.request_id: result.step for result in steps for seq in result.finished}
    assert finished == {"bb": 2, "a": 9, "ccc": 20}
    assert_nothing_left(generator)


def test_arrivals_count_from_the_call() -> None:
    generator = make_generator()
    generator.generate("x", SamplingParams(max_tokens=7))
    steps: list[StepResult] = []
    generator.run_requests([make_request("a", arrival_step=0), make_request("b", arrival_step=1)], on_step=steps.append)
    assert [len(result.batch.sequences) for result in steps] == [1, 1, 2]
    before_s = generator.engine.clock.now()
    (output,) = generator.run_requests([make_request("a", arrival_s=0.001)])
    assert output.metrics.arrival_s >= before_s + 0.001
    assert output.metrics.scheduled_s is not None
    assert output.metrics.scheduled_s >= output.metrics.arrival_s


def test_those_that_wait_for_others_come_when_these_have_ended() -> None:
    generator = make_generator()
    first = make_request("a", max_tokens=4)
    outputs = generator.run_requests(
        [
            first,
            make_request("bb", after=("a",), delay_s=0.002),
            make_request("ccc", max_tokens=500, after=("a", "bb")),
            make_request("dddd", after=("ccc",)),
        ]
    )
    assert [output.finish_reason for output in outputs] == ["length", "length", "rejected", "length"]
    a, bb, ccc, dddd = (output.metrics for output in outputs)
    assert bb.arrival_s == pytest.approx(a.finished_s + 0.002)
    assert bb.finished_s <= ccc.arrival_s <= dddd.arrival_s
    assert_nothing_left(generator)


def test_those_that_wait_are_left_out_when_the_run_is_broken_off() -> None:
    events: list[AnyEvent] = []
    generator = make_generator(emit=events.append)

    def break_off(result: StepResult) -> None:
        raise KeyboardInterrupt

    requests = [make_request("a", max_tokens=9), make_request("bb", after=("a",))]
    (output,) = generator.run_requests(requests, on_step=break_off, on_interrupt="return")
    assert (output.request_id, output.finish_reason) == ("a", "aborted")
    assert [event.request for event in events if isinstance(event, RequestAdded)] == ["a"]
    assert [output.request_id for output in generator.run_requests(requests)] == ["a", "bb"]
    assert_nothing_left(generator)


def test_it_does_not_matter_who_takes_the_turn_in_which_an_awaited_request_ends() -> None:
    generator = make_generator()

    def generate_meanwhile(result: StepResult) -> None:
        if result.step == 0:
            generator.generate("x", SamplingParams(max_tokens=9))

    requests = [make_request("a", max_tokens=4), make_request("bb", after=("a",))]
    outputs = generator.run_requests(requests, on_step=generate_meanwhile)
    assert [output.finish_reason for output in outputs] == ["length", "length"]
    assert_nothing_left(generator)


def test_refused_requests_are_among_the_results() -> None:
    generator = make_generator()
    outputs = generator.run_requests([make_request("a", max_tokens=500), make_request("b")])
    assert [output.finish_reason for output in outputs] == ["rejected", "length"]
    assert_nothing_left(generator)


def test_an_id_that_occurs_twice_is_a_mistake() -> None:
    generator = make_generator()
    with pytest.raises(RequestError, match="request 'a': another one has this id"):
        generator.run_requests([make_request("a"), make_request("b"), make_request("a")])
    assert_nothing_left(generator)


def test_an_id_in_use_by_a_stream_is_a_mistake_too() -> None:
    generator = make_generator()
    stream = generator.stream("dogs", SamplingParams(max_tokens=5))
    next(stream)
    with pytest.raises(RequestError, match="request 0: another one has this id"):
        generator.run_requests([make_request(0)])
    assert list(stream)[-1].finish_reason == "length"
    assert_nothing_left(generator)


def test_own_ids_are_not_given_to_later_prompts() -> None:
    generator = make_generator()
    generator.run_requests([make_request(5), make_request(3)])
    assert generator.generate("x")[0].request_id == 6
    generator.run_requests([make_request(9, max_tokens=500)])
    assert generator.generate("x")[0].request_id == 10


def test_a_stop_condition_of_its_own_and_stop_texts_both_end_a_request() -> None:
    def three_tokens(seq: object) -> bool:
        return seq.num_completion_tokens == 3

    dogs = tokenizer().encode("d") + tokenizer().encode("o") + tokenizer().encode("g")
    generator = make_generator({"text": dogs, "own": dogs})
    params = {"text": SamplingParams(stop="o"), "own": SamplingParams(stop="?")}
    requests = [
        Request(request_id=name, prompt_token_ids=[9], sampling_params=chosen, stop_condition=three_tokens)
        for name, chosen in params.items()
    ]
    by_text, by_condition = generator.run_requests(requests)
    assert (by_text.text, by_text.finish_reason, by_text.stop_reason) == ("d", "stop", "o")
    assert (by_condition.text, by_condition.finish_reason, by_condition.stop_reason) == ("dog", "stop", None)


# ---- metrics ---------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_trace() -> None:
    """Each time and count of an output is what the events say, in a run with preemptions."""
    events: list[AnyEvent] = []
    generator = make_generator(num_blocks=9, max_num_batched_tokens=8, emit=events.append)
    # Ids of different lengths have different prompts.
    requests = [make_request("a" * (1 + i), 8, 9, arrival_step=i) for i in range(4)]
    outputs = generator.run_requests(requests)
    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    for output in outputs:
        told = from_events(events, output.request_id)
        metrics = output.metrics
        assert metrics.num_preemptions == told["num_preemptions"]
        assert metrics.num_prompt_tokens == 8
        assert metrics.num_completion_tokens == len(output.token_ids) == 9
        assert metrics.arrival_s <= told["added_s"]
        assert metrics.scheduled_s == told["scheduled_s"]
        assert metrics.first_token_s == told["first_token_s"]
        assert metrics.finished_s >= told["finished_s"]
        assert metrics.queue_s is not None
        assert metrics.ttft_s is not None
        assert metrics.tpot_s is not None
        assert 0 <= metrics.queue_s < metrics.ttft_s < metrics.e2e_s
        assert metrics.ttft_s + 8 * metrics.tpot_s == pytest.approx(metrics.e2e_s)


def from_events(events: list[AnyEvent], request_id: RequestId) -> dict[str, float]:
    told: dict[str, float] = {"num_preemptions": 0}
    step_started_s, awaits_first_token = 0.0, False
    for event in events:
        match event:
            case RequestAdded(request=request, time=time) if request == request_id:
                told["added_s"] = time
            case StepStarted(time=time):
                step_started_s = time
            case TokensAppended(requests=ids) if request_id in ids and "first_token_s" not in told:
                awaits_first_token = True
            case StepFinished(time=time) if awaits_first_token:
                awaits_first_token, told["first_token_s"] = False, time
            case RequestFinished(request=request, time=time) if request == request_id:
                told["finished_s"] = time
            case Preempted(request=request) if request == request_id:
                told["num_preemptions"] += 1
            case ChunkScheduled(request=request) if request == request_id:
                told.setdefault("scheduled_s", step_started_s)
    return told


def test_own_blocks_found_after_a_preemption_are_no_prefix_hits() -> None:
    generator = make_generator(num_blocks=9)
    outputs = generator.run_requests([make_request("a", 12, 13), make_request("bb", 12, 13)])
    assert [output.metrics.num_preemptions for output in outputs] == [0, 1]
    assert [output.metrics.num_cached_tokens for output in outputs] == [0, 0]


def test_one_token_has_no_time_per_further_token() -> None:
    (output,) = make_generator().generate("x", SamplingParams(max_tokens=1))
    assert output.metrics.tpot_s is None
    assert output.metrics.ttft_s == output.metrics.e2e_s
