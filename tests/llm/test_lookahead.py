"""Text from an engine that looks ahead: the same, and nothing is left behind however it ends."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.errors import StepError
from nanovllm.llm.generator import TextGenerator
from nanovllm.llm.outputs import RequestOutput
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.check import check
from nanovllm.trace.events import AnyEvent, ChunkScheduled, StepFinished, TokensAppended
from tests.llm import support
from tests.llm.support import assert_nothing_left, failing_on, tokenizer

LONG = SamplingParams(max_tokens=50)
EOS = tokenizer().eos_token_id


def make_generator(scripts: dict[Any, list[int]] | None = None, **options: Any) -> TextGenerator:
    return support.make_generator(scripts, is_early=True, **options)


def encode(text: str) -> list[int]:
    return tokenizer().encode(text)


def told(output: RequestOutput) -> tuple[object, ...]:
    return output.text, output.token_ids, output.finish_reason, output.stop_reason


@settings(max_examples=60)
@given(data=st.data())
def test_generate_and_stream_give_the_same_texts(data: st.DataObject) -> None:
    vocabulary = st.integers(0, tokenizer().inner.get_vocab_size() - 1)
    script = st.one_of(st.lists(vocabulary, min_size=1, max_size=12), st.just([*encode("dogs and 🧿"), EOS]))
    scripts = dict(enumerate(data.draw(st.lists(script, min_size=1, max_size=4))))
    params = [
        SamplingParams(
            max_tokens=data.draw(st.integers(1, 30)),
            stop=data.draw(st.sampled_from([(), ("og", "x"), ("🧿",), ("s a",)])),
            ignore_eos=data.draw(st.booleans()),
        )
        for _ in scripts
    ]
    options = {"num_blocks": data.draw(st.integers(12, 30)), "max_num_batched_tokens": data.draw(st.integers(2, 40))}
    prompts = ["dogs " * (number + 1) for number in scripts]
    expected = [told(output) for output in support.make_generator(scripts, **options).generate(prompts, params)]
    events: list[AnyEvent] = []
    generator = make_generator(scripts, emit=events.append, **options)
    assert [told(output) for output in generator.generate(prompts, params)] == expected
    assert_nothing_left(generator)

    texts: dict[int, str] = defaultdict(str)
    generator = make_generator(scripts, **options)
    for chunk in generator.stream(prompts, params):
        texts[chunk.index] += chunk.text
        if chunk.output is not None:
            assert told(chunk.output) == expected[chunk.index]
            assert texts[chunk.index] == chunk.output.text
    assert_nothing_left(generator)
    assert check(events) == []


def test_the_times_of_a_request_are_those_of_its_steps() -> None:
    generator = make_generator({0: [*encode("dog"), EOS]})
    metrics = generator.generate("x", LONG)[0].metrics
    assert metrics.scheduled_s is not None
    assert metrics.first_token_s is not None
    assert metrics.arrival_s <= metrics.scheduled_s < metrics.first_token_s < metrics.finished_s


def test_a_step_that_cannot_be_computed_fails_its_requests_and_no_others() -> None:
    generator = make_generator(on_call=failing_on(1), max_num_batched_tokens=8)
    outputs = generator.generate([encode("d") * 8, encode("o") * 4], SamplingParams(max_tokens=3))
    assert [output.finish_reason for output in outputs] == ["length", "error"]
    assert isinstance(outputs[1].error, StepError)
    assert_nothing_left(generator)


@pytest.mark.parametrize("hook", ["on_call", "on_result"])
def test_a_fault_of_the_backend_leaves_nothing_behind(hook: str) -> None:
    def break_down(call: int) -> None:
        if call == 2:
            raise RuntimeError("no such device")

    generator = make_generator(**{hook: break_down})
    with pytest.raises(RuntimeError, match="no such device"):
        generator.generate(["x", "y"], LONG)
    assert not generator.engine.live
    assert not generator.engine.outputs
    assert generator.engine.scheduler.is_finished()


# ---- ending early --------------------------------------------------------------------------------------------------


def pressing(call: int, num_times: int = 1) -> Callable[[int], None]:
    """For a hook of the backend: the user presses Ctrl-C in that call."""
    left = [call] * num_times

    def hook(current: int) -> None:
        while current in left:
            left.remove(current)
            signal.raise_signal(signal.SIGINT)

    return hook


PARAMS = [SamplingParams(max_tokens=3), SamplingParams(max_tokens=50)]


@pytest.mark.parametrize("hook", ["on_call", "on_result"])
def test_a_ctrl_c_ends_the_requests_and_passes_on(hook: str) -> None:
    events: list[AnyEvent] = []
    generator = make_generator(**{hook: pressing(5)}, emit=events.append)
    with pytest.raises(KeyboardInterrupt):
        generator.generate(["x", "y"], PARAMS)
    assert_nothing_left(generator)
    assert check(events) == []
    assert [output.finish_reason for output in generator.generate(["x", "y"], PARAMS)] == ["length", "length"]


@pytest.mark.parametrize(("hook", "num_tokens"), [("on_call", 5), ("on_result", 6)])
def test_what_there_is_can_be_returned_instead(hook: str, num_tokens: int) -> None:
    """The turn in which the interrupt came is complete; the step that it began is not waited for by anyone."""
    events: list[AnyEvent] = []
    generator = make_generator(**{hook: pressing(5)}, emit=events.append)
    finished, unfinished = generator.generate(["x", "y"], PARAMS, on_interrupt="return")
    assert (finished.finish_reason, len(finished.token_ids)) == ("length", 3)
    assert (unfinished.finish_reason, len(unfinished.token_ids)) == ("aborted", num_tokens)
    assert unfinished.text == tokenizer().decode(unfinished.token_ids)
    assert_nothing_left(generator)
    assert check(events) == []


def test_a_second_ctrl_c_does_not_wait_and_loses_no_text() -> None:
    events: list[AnyEvent] = []
    generator = make_generator(on_result=pressing(5, num_times=2), emit=events.append)
    finished, unfinished = generator.generate(["x", "y"], PARAMS, on_interrupt="return")
    assert (unfinished.finish_reason, len(unfinished.token_ids)) == ("aborted", 5)
    assert unfinished.text == tokenizer().decode(unfinished.token_ids)
    assert finished.finish_reason == "length"
    assert_nothing_left(generator)
    assert check(events) == []


def test_a_request_aborted_by_the_consumer_keeps_the_text_it_had() -> None:
    generator = make_generator({0: encode("dogs and foxes"), 1: encode("dogs")})
    texts = ["", ""]
    outputs: dict[int, RequestOutput] = {}
    for chunk in generator.stream(["x", "y"], LONG):
        texts[chunk.index] += chunk.text
        if chunk.output is not None:
            outputs[chunk.index] = chunk.output
        if texts[0] == "dog":
            generator.abort(0)
    assert (outputs[0].finish_reason, outputs[0].text) == ("aborted", "dog")
    assert (outputs[1].finish_reason, outputs[1].text) == ("length", texts[1])
    assert_nothing_left(generator)


def test_aborting_the_last_request_begins_no_further_step_and_ends_the_one_in_flight() -> None:
    events: list[AnyEvent] = []
    generator = make_generator(emit=events.append)
    stream = generator.stream("dogs and foxes", LONG)
    next(stream)
    num_steps = generator.engine.step_index
    generator.abort(0)
    assert next(stream).finish_reason == "aborted"
    assert next(stream, None) is None
    assert generator.engine.step_index == num_steps
    assert isinstance(events[-1], StepFinished)
    assert check(events) == []


def test_closing_a_stream_ends_its_requests_and_frees_their_blocks() -> None:
    events: list[AnyEvent] = []
    generator = make_generator(emit=events.append)
    stream = generator.stream(["dogs and foxes"] * 3, LONG)
    next(stream)
    stream.close()
    assert_nothing_left(generator)
    assert check(events) == []


@pytest.mark.parametrize("kind", [ChunkScheduled, TokensAppended, StepFinished])
def test_a_listener_may_abort_amid_a_turn(kind: type[AnyEvent]) -> None:
    def emit(event: AnyEvent) -> None:
        if type(event) is kind:
            generator.abort(0)

    generator = make_generator(emit=emit)
    aborted, other = generator.generate(["dogs and foxes", "y"], SamplingParams(max_tokens=5))
    assert (aborted.finish_reason, len(aborted.token_ids)) == ("aborted", int(kind is not ChunkScheduled))
    assert (other.finish_reason, len(other.token_ids)) == ("length", 5)
    assert_nothing_left(generator)


def test_a_stream_may_be_given_up_while_the_last_step_is_waited_for() -> None:
    """As it happens when the garbage collector finds one: amid a turn, it is not the stream that waits."""
    events: list[AnyEvent] = []
    closed_in: list[int] = []

    def on_result(call: int) -> None:
        if generator.engine.scheduler.is_finished() and not closed_in:
            closed_in.append(call)
            stream.close()

    generator = make_generator(on_result=on_result, emit=events.append)
    stream = generator.stream("x", SamplingParams(max_tokens=2))
    next(stream)
    (output,) = generator.generate("y", SamplingParams(max_tokens=3))
    assert (closed_in, output.finish_reason) == ([4], "length")
    assert_nothing_left(generator)
    assert check(events) == []


def test_several_threads_may_generate_at_once() -> None:
    generator = make_generator(num_blocks=300)
    texts: dict[int, list[str]] = {}

    def work(number: int) -> None:
        outputs = generator.generate([[*encode("dogs"), number]] * 3, SamplingParams(max_tokens=30))
        texts[number] = [output.text for output in outputs]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {
        number: [tokenizer().decode(([*encode("dogs"), number] * 30)[:30])] * 3 for number in range(10, 16)
    }
    assert_nothing_left(generator)
