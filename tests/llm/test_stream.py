"""``stream``: text as it comes, and how a stream ends early."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from hypothesis import given, settings, strategies as st

from nanovllm.engine.request import Request
from nanovllm.errors import RequestError, UserError
from nanovllm.llm.generator import TextGenerator
from nanovllm.llm.outputs import StreamChunk
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import (
    AnyEvent,
    BlocksAllocated,
    ChunkScheduled,
    DecodeScheduled,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from tests.llm.support import KINDS, assert_nothing_left, make_generator, tokenizer


def encode(text: str) -> list[int]:
    return tokenizer().encode(text)


TEXT = "dogs 🧿 and foxes"
EOS = tokenizer().eos_token_id
LONG = SamplingParams(max_tokens=100)


def by_index(chunks: list[StreamChunk]) -> dict[int, list[StreamChunk]]:
    """The chunks of each prompt; none comes after one with an output."""
    collected: dict[int, list[StreamChunk]] = defaultdict(list)
    for chunk in chunks:
        assert not collected[chunk.index] or collected[chunk.index][-1].output is None
        collected[chunk.index].append(chunk)
    return collected


def test_a_stream_brings_text_as_it_becomes_certain() -> None:
    generator = make_generator({0: [*encode("a🧿b"), EOS]})
    chunks = list(generator.stream("x", LONG))
    assert [chunk.text for chunk in chunks] == ["a", "🧿", "b", ""]
    assert [len(chunk.token_ids) for chunk in chunks] == [1, 3, 1, 1]
    assert [chunk.finish_reason for chunk in chunks] == [None, None, None, "eos"]
    assert chunks[-1].output is not None
    assert chunks[-1].output.text == "a🧿b"
    assert_nothing_left(generator)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_the_chunks_of_a_stream_add_up_to_what_generate_returns(kind: str, data: st.DataObject) -> None:
    vocabulary = st.integers(0, tokenizer(kind).inner.get_vocab_size() - 1)
    scripts = dict(
        enumerate(data.draw(st.lists(st.lists(vocabulary, min_size=1, max_size=15), min_size=1, max_size=4)))
    )
    options = st.builds(
        SamplingParams,
        max_tokens=st.integers(1, 20),
        ignore_eos=st.booleans(),
        stop=st.lists(st.sampled_from(["e", "th", "dog", " ", "\ufffd"]), max_size=2).map(tuple),
        stop_token_ids=st.lists(vocabulary, max_size=1).map(tuple),
    )
    params = [data.draw(options) for _ in scripts]
    prompts = [[7, 8, 9, request_id] for request_id in scripts]
    # So few blocks that requests are preempted.
    generator = make_generator(scripts, kind=kind, num_blocks=data.draw(st.integers(8, 20)))
    chunks = by_index(list(generator.stream(prompts, params)))
    assert_nothing_left(generator)
    for expected in make_generator(scripts, kind=kind).generate(prompts, params):
        assert isinstance(expected.request_id, int)
        mine = chunks[expected.request_id]
        output = mine[-1].output
        assert output is not None
        assert "".join(chunk.text for chunk in mine) == output.text == expected.text
        assert [token for chunk in mine for token in chunk.token_ids] == output.token_ids == expected.token_ids
        assert (output.finish_reason, output.stop_reason) == (expected.finish_reason, expected.stop_reason)
        assert all(chunk.text for chunk in mine[:-1])


def test_conversations_and_prompts_can_both_be_streamed() -> None:
    messages = [{"role": "user", "content": "Hi?"}]
    prompts = {
        "one conversation": (messages, ["<|turn|>user: Hi?\n<|turn|>assistant:"]),
        "two": ([messages, messages], ["<|turn|>user: Hi?\n<|turn|>assistant:"] * 2),
        "one text": ("Hi?", ["Hi?"]),
        "two texts": (["Hi?", "Ho!"], ["Hi?", "Ho!"]),
        "token ids": (encode("Hi?"), [None]),
        "nothing": ([], []),
    }
    for given_prompts, expected in prompts.values():
        chunks = list(make_generator().stream(given_prompts, LONG))
        assert [chunk.output.prompt for chunk in chunks if chunk.output is not None] == expected


def test_template_options_reach_the_template() -> None:
    chunks = list(make_generator().stream([{"role": "user", "content": "Hi?"}], LONG, shout=True))
    assert chunks[-1].output is not None
    assert chunks[-1].output.prompt == "<|turn|>user: Hi?\n<|turn|>assistant: LOUD"


# ---- mistakes --------------------------------------------------------------------------------------------------


def test_a_mistaken_call_is_refused_before_anything_is_asked_for() -> None:
    with pytest.raises(UserError, match="there are 2 prompts but 1 sampling_params"):
        make_generator().stream(["a", "b"], [LONG])


def test_a_refused_request_has_one_chunk_and_does_not_disturb_the_others() -> None:
    generator = make_generator()
    chunks = by_index(list(generator.stream([encode("x") * 300, "y"], SamplingParams(max_tokens=3))))
    (refused,) = chunks[0]
    assert (refused.text, refused.token_ids, refused.finish_reason) == ("", [], "rejected")
    assert refused.output is not None
    assert isinstance(refused.output.error, RequestError)
    assert chunks[1][-1].finish_reason == "length"
    assert_nothing_left(generator)


def test_if_no_request_can_run_the_first_error_is_raised() -> None:
    generator = make_generator()
    with pytest.raises(RequestError, match="max_model_len is 200"):
        next(generator.stream([encode("x") * 300]))
    assert_nothing_left(generator)


# ---- ending early ----------------------------------------------------------------------------------------------


def test_closing_a_stream_ends_its_requests_and_frees_their_blocks() -> None:
    generator = make_generator()
    stream = generator.stream(["dogs and foxes"] * 3, LONG)
    next(stream)
    assert len(generator.engine.live) == 3
    stream.close()
    assert_nothing_left(generator)


def test_leaving_the_loop_ends_the_stream() -> None:
    generator = make_generator()
    for _ in generator.stream(["dogs and foxes"] * 3, LONG):
        break
    assert_nothing_left(generator)


def test_a_stream_that_nobody_read_never_began() -> None:
    generator = make_generator()
    generator.stream(["dogs and foxes"] * 3, LONG)
    assert_nothing_left(generator)


def test_a_request_aborted_by_the_consumer_keeps_the_text_it_had() -> None:
    generator = make_generator({0: encode(TEXT), 1: encode(TEXT)})
    chunks: list[StreamChunk] = []
    for chunk in generator.stream(["x", "y"], LONG):
        chunks.append(chunk)
        if chunk.index == 0 and chunk.text == "🧿":
            assert generator.abort(0)
            assert not generator.abort(0)
    first, second = by_index(chunks)[0], by_index(chunks)[1]
    output = first[-1].output
    assert output is not None
    assert (output.finish_reason, output.outputs[0].finish_reason) == ("aborted", "abort")
    assert "".join(chunk.text for chunk in first) == output.text == "dogs 🧿"
    assert second[-1].finish_reason == "length"
    assert_nothing_left(generator)


def test_aborting_the_last_request_runs_no_further_step() -> None:
    generator = make_generator()
    stream = generator.stream("dogs and foxes", LONG)
    next(stream)
    num_steps = generator.engine.step_index
    generator.abort(0)
    assert next(stream).finish_reason == "aborted"
    assert next(stream, None) is None
    assert generator.engine.step_index == num_steps


def test_a_request_can_be_aborted_from_another_thread() -> None:
    in_step, results = threading.Event(), []

    def abort_during_the_step() -> None:
        in_step.wait()
        results.append(generator.abort(0))

    def on_call(call: int) -> None:
        if call == 3:
            in_step.set()

    generator = make_generator({0: encode("d"), 1: encode("g")}, on_call=on_call)
    other = threading.Thread(target=abort_during_the_step)
    other.start()
    outputs = []
    for chunk in generator.stream(["x", "y"], SamplingParams(max_tokens=100)):
        if generator.engine.step_index == 50:
            other.join()  # by now at the latest
        outputs += [chunk.output] if chunk.output is not None else []
    assert results == [True]
    assert [(output.request_id, output.finish_reason) for output in outputs] == [(0, "aborted"), (1, "length")]
    # The step that was running kept its result: nothing is cut out of its middle.
    assert 4 <= len(outputs[0].token_ids) < 52
    assert_nothing_left(generator)


@pytest.mark.parametrize("kind", [StepStarted, BlocksAllocated, ChunkScheduled, TokensAppended, StepFinished])
def test_a_listener_may_abort_amid_a_step(kind: type[AnyEvent]) -> None:
    """The request ends with the step: nothing is taken away from under the scheduler's hands."""

    def emit(event: AnyEvent) -> None:
        if type(event) is kind:
            generator.abort(0)

    generator = make_generator(emit=emit)
    aborted, other = generator.generate(["dogs and foxes", "y"], SamplingParams(max_tokens=5))
    assert (aborted.finish_reason, len(aborted.token_ids)) == ("aborted", 1)
    assert (other.finish_reason, len(other.token_ids)) == ("length", 5)
    assert_nothing_left(generator)


def test_a_stream_may_be_given_up_amid_a_step() -> None:
    """As it happens when the garbage collector finds one."""

    def emit(event: AnyEvent) -> None:
        if type(event) is DecodeScheduled and 1 in event.requests:
            stream.close()

    generator = make_generator(emit=emit)
    stream = generator.stream("dogs and foxes", LONG)
    next(stream)
    (output,) = generator.generate("y", SamplingParams(max_tokens=5))
    assert output.finish_reason == "length"
    assert_nothing_left(generator)


def test_an_unknown_request_cannot_be_aborted() -> None:
    assert not make_generator().abort(17)


# ---- several callers -------------------------------------------------------------------------------------------


def test_streams_and_calls_share_an_engine() -> None:
    generator = make_generator({0: encode("dogs"), 1: encode("fox"), 2: encode("🧿")})
    first = generator.stream("x", SamplingParams(max_tokens=40))
    second = generator.stream("y", SamplingParams(max_tokens=50))
    chunks = [next(first), next(second), next(first)]
    (between,) = generator.generate("z", SamplingParams(max_tokens=5))
    collected = by_index([*chunks[::2], *first])[0]
    assert collected[-1].output is not None
    assert "".join(chunk.text for chunk in collected) == collected[-1].output.text
    assert len(collected[-1].output.token_ids) == 40
    assert between.text.startswith("🧿")
    assert list(second)[-1].finish_reason == "length"
    assert_nothing_left(generator)


def test_several_threads_may_generate_at_once() -> None:
    generator: TextGenerator = make_generator(num_blocks=300)
    texts: dict[int, list[str]] = {}

    def work(number: int) -> None:
        outputs = generator.generate([[*encode("dogs"), number]] * 3, SamplingParams(max_tokens=30))
        texts[number] = [output.text for output in outputs]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, found in texts.items():
        script = [*encode("dogs"), number]
        assert found == [tokenizer().decode((script * 30)[:30])] * 3
    assert len(texts) == 6
    assert_nothing_left(generator)


def test_a_request_under_an_id_in_use_leaves_the_other_alone() -> None:
    generator = make_generator()
    stream = generator.stream("dogs", SamplingParams(max_tokens=5))
    next(stream)
    twin = Request(request_id=0, prompt_token_ids=[5], sampling_params=LONG)
    with pytest.raises(RequestError, match="request 0: another request with this id is not finished yet"):
        generator.engine.add(twin)
    assert list(stream)[-1].finish_reason == "length"
    assert_nothing_left(generator)
