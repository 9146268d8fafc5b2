"""``generate`` and ``chat``: what goes in, what comes out, and why it ended."""

from __future__ import annotations

import io
from collections import UserDict

import numpy as np
import pytest

from nanovllm.errors import ModelError, RequestError, StepError, UserError
from nanovllm.llm.generator import TextGenerator
from nanovllm.llm.progress import ThroughputBar
from nanovllm.sampling_params import SamplingParams
from tests.llm.support import END, assert_nothing_left, failing_on, make_generator, tokenizer


def encode(text: str) -> list[int]:
    return tokenizer().encode(text)


EOS = encode(END)[0]
D, OH, G, DOT = (encode(letter)[0] for letter in "dog.")
LONG = SamplingParams(max_tokens=100)


# ---- prompts ---------------------------------------------------------------------------------------------------


def test_texts_and_token_ids_may_be_mixed_and_results_come_in_order() -> None:
    scripts = {0: [*encode(" fox"), EOS], 1: [*encode(" and so"), EOS], 2: [EOS]}
    generator = make_generator(scripts)
    outputs = generator.generate(["The quick", encode("dogs"), tuple(encode("x"))], LONG)
    assert [output.text for output in outputs] == [" fox", " and so", ""]
    assert [output.prompt for output in outputs] == ["The quick", None, None]
    assert [output.prompt_token_ids for output in outputs] == [encode("The quick"), encode("dogs"), encode("x")]
    assert [output.request_id for output in outputs] == [0, 1, 2]
    assert_nothing_left(generator)


@pytest.mark.parametrize("prompts", ["The quick", encode("The quick"), [np.int64(t) for t in encode("The quick")]])
def test_a_single_prompt_gives_a_list_of_one(prompts: str | list[int]) -> None:
    (output,) = make_generator().generate(prompts, SamplingParams(max_tokens=3))
    assert output.prompt_token_ids == encode("The quick")
    assert len(output.token_ids) == 3


def test_no_prompts_give_no_results() -> None:
    assert make_generator().generate([]) == []


def test_ids_are_numbered_per_generator_and_never_used_twice() -> None:
    first, second = make_generator(), make_generator()
    assert [output.request_id for output in first.generate(["a", "b"])] == [0, 1]
    assert [output.request_id for output in first.generate(["a"])] == [2]
    assert [output.request_id for output in second.generate(["a"])] == [0]


def test_a_second_call_finds_the_prefixes_of_the_first() -> None:
    generator = make_generator()
    prompt = encode("The quick brown fox jumps")
    first = generator.generate([prompt], LONG)[0].metrics
    second = generator.generate([prompt], LONG)[0].metrics
    assert first.num_cached_tokens == 0
    assert second.num_cached_tokens == (len(prompt) - 1) // 4 * 4


# ---- ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "text", "num_tokens", "finish_reason", "stop_reason"),
    [
        (SamplingParams(), "dog.", 5, "eos", None),
        (SamplingParams(max_tokens=2), "do", 2, "length", None),
        (SamplingParams(max_tokens=7, ignore_eos=True), "dog.do", 7, "length", None),
        (SamplingParams(stop="og"), "d", 3, "stop", "og"),
        (SamplingParams(stop=["nowhere", "og."]), "d", 4, "stop", "og."),
        (SamplingParams(stop="g.d"), "dog.", 5, "eos", None),
        (SamplingParams(stop="g.d", max_tokens=4), "dog.", 4, "length", None),
        (SamplingParams(stop_token_ids=[G]), "do", 3, "stop", G),
        (SamplingParams(stop_token_ids=[EOS], ignore_eos=True), "dog.", 5, "stop", EOS),
        # A token that ends the request comes before a text that it would complete.
        (SamplingParams(stop_token_ids=[G], stop="og"), "do", 3, "stop", G),
    ],
)
def test_why_a_request_ends(
    params: SamplingParams, text: str, num_tokens: int, finish_reason: str, stop_reason: str | int | None
) -> None:
    generator = make_generator({0: [D, OH, G, DOT, EOS]})
    (output,) = generator.generate("x", params)
    assert (output.text, output.finish_reason, output.stop_reason) == (text, finish_reason, stop_reason)
    assert len(output.token_ids) == num_tokens
    assert_nothing_left(generator)


def test_the_ending_token_is_kept_among_the_ids_but_has_no_text() -> None:
    script = [*encode("dog"), EOS]
    (output,) = make_generator({0: script}).generate("x", LONG)
    assert (output.text, output.token_ids) == ("dog", script)


def test_an_output_can_be_read_as_in_nano_vllm_and_in_vllm() -> None:
    (output,) = make_generator({0: [*encode("dog"), EOS]}).generate("x", LONG)
    assert (output["text"], output["token_ids"]) == (output.text, output.token_ids)
    (completion,) = output.outputs
    assert (completion.index, completion.text, completion.token_ids) == (0, output.text, output.token_ids)
    assert (output.finish_reason, completion.finish_reason, completion.stop_reason) == ("eos", "stop", None)
    with pytest.raises(KeyError, match="'logprobs': an output has the keys 'text' and 'token_ids'"):
        output["logprobs"]


def test_a_step_that_cannot_be_computed_fails_its_requests_and_no_others() -> None:
    generator = make_generator(on_call=failing_on(0), max_num_batched_tokens=8)
    outputs = generator.generate([[D] * 8, [OH] * 4], SamplingParams(max_tokens=3))
    assert [output.finish_reason for output in outputs] == ["error", "length"]
    assert isinstance(outputs[0].error, StepError)
    assert str(outputs[0].error) == "out of memory"
    assert outputs[0].metrics.first_token_s is None
    assert_nothing_left(generator)


# ---- mistakes --------------------------------------------------------------------------------------------------


def test_a_request_that_can_never_run_does_not_disturb_the_others() -> None:
    generator = make_generator({0: [EOS], 2: [*encode("dog"), EOS]}, num_blocks=30)
    prompts = ["x", encode("x") * 300, "y", encode("x") * 100, [10**6], []]
    outputs = generator.generate(prompts, [LONG, LONG, LONG, LONG, LONG, LONG])
    assert [output.finish_reason for output in outputs] == ["eos", "rejected", "eos"] + ["rejected"] * 3
    reasons = [output.error.reason for output in outputs if isinstance(output.error, RequestError)]
    assert reasons == ["too_long", "pool_too_small", "bad_token_id", "empty_prompt"]
    assert str(outputs[1].error) == (
        "request 1: prompt (300) + max_tokens (100) = 400 tokens, but max_model_len is 200"
    )
    assert outputs[1].metrics.queue_s is outputs[1].metrics.ttft_s is outputs[1].metrics.tpot_s is None
    assert_nothing_left(generator)


def test_if_no_request_can_run_the_first_error_is_raised() -> None:
    generator = make_generator()
    with pytest.raises(RequestError, match=r"request 0: .* max_model_len is 200"):
        generator.generate([encode("x") * 300, []], LONG)
    assert_nothing_left(generator)


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (7, None, "prompts is a int: a text, a list of token ids, or a list of such"),
        (["a", None], None, r"prompts\[1\] is a NoneType: a text or a list of token ids is wanted"),
        (["a", {"role": "user"}], None, r"prompts\[1\] is a dict"),
        (["a", "b\ud83d"], None, r"prompts\[1\] is no valid text: character 1 is half of a surrogate pair"),
        (["a", "b"], [LONG], "there are 2 prompts but 1 sampling_params: give one for all, or one for each"),
        (["a"], {"temperature": 0}, "sampling_params must be a SamplingParams, or a list with one for each"),
        (["a"], [None], "sampling_params must be a SamplingParams, or a list with one for each"),
    ],
)
def test_a_mistaken_call_is_refused_in_words(prompts: object, params: object, message: str) -> None:
    generator = make_generator()
    with pytest.raises(UserError, match=message) as caught:
        generator.generate(prompts, params)
    assert "\n" not in str(caught.value)
    assert_nothing_left(generator)


def test_a_fault_of_the_backend_leaves_nothing_behind() -> None:
    def break_down(call: int) -> None:
        if call == 2:
            raise RuntimeError("no such device")

    generator = make_generator(on_call=break_down)
    with pytest.raises(RuntimeError, match="no such device"):
        generator.generate(["x", "y"], LONG)
    assert_nothing_left(generator)
    assert generator.generate("x", SamplingParams(max_tokens=1))[0].finish_reason == "length"


def test_a_closed_generator_says_so() -> None:
    with make_generator() as generator:
        backend = generator.engine.backend
    assert backend.is_closed
    with pytest.raises(UserError, match="the engine is closed"):
        generator.generate("x")


# ---- chat ------------------------------------------------------------------------------------------------------


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_chat_writes_conversations_by_the_template() -> None:
    generator = make_generator({0: [EOS], 1: [EOS]})
    outputs = generator.chat([ask("Hi?"), [*ask("A"), {"role": "assistant", "content": "B"}]], LONG)
    prompt = "<|turn|>user: Hi?\n<|turn|>assistant:"
    assert outputs[0].prompt == prompt
    assert outputs[0].prompt_token_ids == encode(prompt)
    assert outputs[1].prompt == "<|turn|>user: A\n<|turn|>assistant: B\n<|turn|>assistant:"


def test_chat_takes_one_conversation_of_any_mappings_and_template_options() -> None:
    generator = make_generator()
    (output,) = generator.chat([UserDict(ask("Hi?")[0])], LONG, shout=True)
    assert output.prompt == "<|turn|>user: Hi?\n<|turn|>assistant: LOUD"
    (output,) = generator.chat(ask("Hi?"), LONG, add_generation_prompt=False)
    assert output.prompt == "<|turn|>user: Hi?\n"
    (output,) = generator.chat(ask("Hi?"), LONG, chat_template="{{ messages[0].content }}")
    assert output.prompt == "Hi?"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Hi?", "messages is a str: a list of messages, or a list of such lists"),
        ([[]], r"conversation 0 is \[\]: a list of at least one message is wanted"),
        ([ask("Hi?"), "Hi?"], "conversation 1 is 'Hi\\?': a list of at least one message is wanted"),
        ([{"content": "Hi?"}], "conversation 0 holds .*: a message has a 'role' and a 'content'"),
        (ask("\ud83d"), "conversation 0 is no valid text: character 14 is half of a surrogate pair"),
        ([{"role": "judge", "content": ""}], "conversation 0 does not fit the chat template: no such role"),
    ],
)
def test_a_mistaken_conversation_is_refused_in_words(messages: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_generator().chat(messages)


def test_a_model_without_a_chat_template_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make_generator()
    monkeypatch.setattr(generator.tokenizer, "chat_template", None)
    with pytest.raises(ModelError, match=r"has no chat template: give one .* call generate\(\)"):
        generator.chat(ask("Hi?"))


# ---- progress --------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("use_tqdm", "is_terminal"), [(True, False), (False, True), (False, False)])
def test_nothing_is_printed_where_nobody_looks(
    use_tqdm: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    make_generator().generate(["x", "y"], LONG, use_tqdm=use_tqdm)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("use_tqdm", "is_terminal"), [(True, True), ("always", False)])
def test_the_bar_shows_requests_and_the_speed_of_both_phases(
    use_tqdm: bool, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    make_generator().generate(["x", "y"], SamplingParams(max_tokens=5), use_tqdm=use_tqdm)
    shown = screen.getvalue()
    assert "2/2" in shown
    assert "prefill" in shown
    assert "tok/s" in shown


def test_the_speeds_are_means_over_the_steps_of_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := io.StringIO())
    monkeypatch.setenv("COLUMNS", "120")
    generator: TextGenerator = make_generator()
    with ThroughputBar(1, "always") as bar:
        for start_s, tokens, is_prefill in [(0.0, 300, True), (1.0, 500, True), (2.0, 7, False), (3.0, 9, False)]:
            result = generator.engine.step()
            batch = result.batch._replace(is_prefill=is_prefill)
            bar.count(result._replace(batch=batch, num_tokens=tokens, started_s=start_s, finished_s=start_s + 0.5))
    assert "prefill 800 tok/s" in screen.getvalue()
    assert "decode 16 tok/s" in screen.getvalue()
