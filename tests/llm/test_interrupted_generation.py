"""Ctrl-C: the engine stays usable, and what is finished is not lost."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, StepFinished, StepStarted
from tests.llm.support import assert_nothing_left, make_generator, tokenizer


def interrupt_in(call: int) -> Callable[[int], None]:
    """For ``on_call``: the user presses Ctrl-C while that step is computed."""

    def on_call(current: int) -> None:
        if current == call:
            signal.raise_signal(signal.SIGINT)

    return on_call


PARAMS = [SamplingParams(max_tokens=3), SamplingParams(max_tokens=50)]


def test_generate_ends_its_requests_and_passes_the_interrupt_on() -> None:
    generator = make_generator(on_call=interrupt_in(5))
    with pytest.raises(KeyboardInterrupt):
        generator.generate(["x", "y"], PARAMS)
    assert_nothing_left(generator)
    assert [output.finish_reason for output in generator.generate(["x", "y"], PARAMS)] == ["length", "length"]


def test_generate_can_return_what_there_is_instead() -> None:
    generator = make_generator(on_call=interrupt_in(5))
    finished, unfinished = generator.generate(["x", "y"], PARAMS, on_interrupt="return")
    assert (finished.finish_reason, len(finished.token_ids)) == ("length", 3)
    # The step in which the interrupt came is complete.
    assert (unfinished.finish_reason, len(unfinished.token_ids)) == ("aborted", 6)
    assert unfinished.text == tokenizer().decode(unfinished.token_ids)
    assert_nothing_left(generator)


def test_no_step_of_the_trace_is_left_open() -> None:
    events: list[AnyEvent] = []
    generator = make_generator(on_call=interrupt_in(5), emit=events.append)
    generator.generate(["x", "y"], PARAMS, on_interrupt="return")
    started = [event.step for event in events if isinstance(event, StepStarted)]
    assert [event.step for event in events if isinstance(event, StepFinished)] == started == list(range(6))


def test_a_stream_ends_its_requests_and_passes_the_interrupt_on() -> None:
    generator = make_generator(on_call=interrupt_in(5))
    chunks = []
    with pytest.raises(KeyboardInterrupt):
        chunks.extend(generator.stream(["x", "y"], PARAMS))
    assert_nothing_left(generator)


@pytest.mark.parametrize("on_interrupt", ["raise", "return"])
def test_a_workload_can_be_interrupted_too(on_interrupt: str) -> None:
    def make_request(request_id: int, max_tokens: int, arrival_step: int) -> Request:
        return Request(
            request_id=request_id,
            prompt_token_ids=[5, 6, 7],
            sampling_params=SamplingParams(max_tokens=max_tokens),
            arrival_step=arrival_step,
        )

    generator = make_generator(on_call=interrupt_in(5))
    requests = [make_request(0, 3, 0), make_request(1, 50, 1), make_request(2, 1, 40), make_request(3, 1, 41)]
    if on_interrupt == "raise":
        with pytest.raises(KeyboardInterrupt):
            generator.run_requests(requests)
    else:
        outputs = generator.run_requests(requests, on_interrupt="return")
        assert [(output.request_id, output.finish_reason) for output in outputs] == [(0, "length"), (1, "aborted")]
    assert_nothing_left(generator)
