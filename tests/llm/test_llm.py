"""``LLM`` with a model that computes: options, traces, mistakes, and scripts written for nano-vLLM."""

from __future__ import annotations

import gc
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from nanovllm import LLM, SamplingParams
from nanovllm.errors import ConfigError, ModelError, UserError
from nanovllm.trace.events import AnyEvent, TraceStarted
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.recorder import Recorder
from tests.llm.conftest import MAX_POSITIONS
from tests.llm.support import END, TURN, assert_nothing_left, tokenizer

SMALL = {"num_kvcache_blocks": 64, "kvcache_block_size": 16, "device": "cpu"}
GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["The quick brown fox", "größer 🙂", tokenizer().encode("lazy dog")]


@pytest.fixture(scope="module")
def llm(model_path: Path) -> Iterator[LLM]:
    with LLM(str(model_path), **SMALL) as llm:
        yield llm


# ---- text ------------------------------------------------------------------------------------------------------


def test_text_is_what_the_tokens_decode_to(llm: LLM) -> None:
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=1.0, max_tokens=40, ignore_eos=True))
    for output in outputs:
        assert len(output.token_ids) == 40
        assert output.text == llm.get_tokenizer().decode(output.token_ids, skip_special_tokens=True)
    assert_nothing_left(llm)


def test_streamed_and_generated_text_are_the_same(llm: LLM) -> None:
    expected = [output.text for output in llm.generate(PROMPTS, GREEDY)]
    texts = ["", "", ""]
    for chunk in llm.stream(PROMPTS, GREEDY):
        texts[chunk.index] += chunk.text
    assert texts == expected
    assert_nothing_left(llm)


def test_chat_goes_through_the_template_of_the_model(llm: LLM) -> None:
    (output,) = llm.chat([{"role": "user", "content": "Hi?"}], GREEDY)
    assert output.prompt == "<|turn|>user: Hi?\n<|turn|>assistant:"
    assert output.prompt_token_ids[0] == tokenizer().inner.token_to_id(TURN)


def test_the_prefix_cache_lasts_from_call_to_call_and_changes_nothing(llm: LLM) -> None:
    prompt = tokenizer().encode("The quick brown fox jumps over the lazy dog " * 3)
    first, second = llm.generate(prompt, GREEDY)[0], llm.generate(prompt, GREEDY)[0]
    assert (first.metrics.num_cached_tokens, second.metrics.num_cached_tokens) == (0, (len(prompt) - 1) // 16 * 16)
    assert first.token_ids == second.token_ids


def test_a_prompt_that_is_too_long_is_refused_by_the_engine_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(llm.tokenizer, "model_max_length", 100, raising=False)
    logging.getLogger("transformers").addHandler(handler)
    outputs = llm.generate(["x", "dogs " * 300], GREEDY)
    logging.getLogger("transformers").removeHandler(handler)
    assert "max_model_len is 512" in str(outputs[1].error)
    assert not records


# ---- options ---------------------------------------------------------------------------------------------------


def test_defaults_come_from_the_model(llm: LLM, model_path: Path) -> None:
    assert llm.config.model == str(model_path)
    assert llm.config.max_model_len == MAX_POSITIONS
    assert llm.config.eos_token_ids == {tokenizer().inner.token_to_id(END), tokenizer().inner.token_to_id(TURN)}


def test_options_win_over_the_model(model_path: Path) -> None:
    with LLM(model_path, max_model_len=100, eos=7, **SMALL) as llm:
        assert llm.config.max_model_len == 100
        assert llm.config.eos_token_ids == {7}


def test_the_tokenizers_end_of_text_counts_too(model_path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model_path, tmp_path / "copy")
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((copy / name).read_text())
        (copy / name).write_text(json.dumps({**settings, "eos_token_id": 9}))
    with LLM(copy, **SMALL) as llm:
        assert llm.config.eos_token_ids == {9, tokenizer().inner.token_to_id(END)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_length": 100}, "max_model_length=100 is not allowed: there is no such option; the options are"),
        ({"max_model_len": 513}, "max_model_len=513 is not allowed: at most 512, the positions of this model"),
        ({"max_num_seqs": 0}, "max_num_seqs=0 is not allowed: a whole number from 1 upward"),
        ({"backend": "jax"}, "backend='jax' is not allowed: there is no such option"),
    ],
)
def test_a_mistaken_option_is_refused_in_words(model_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LLM(str(model_path), **options)
    assert str(caught.value).startswith(message)


def test_a_model_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model '\./nowhere' does not exist"):
        LLM("./nowhere")


def test_a_model_without_a_tokenizer_says_so(model_path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model_path, tmp_path / "copy", ignore=shutil.ignore_patterns("tokenizer*"))
    with pytest.raises(ModelError, match="there is no tokenizer: one of"):
        LLM(copy, **SMALL)


@pytest.mark.parametrize("content", ["{", "{}", '{"version": "1.0", "model": {}}'])
def test_a_broken_tokenizer_says_so(model_path: Path, tmp_path: Path, content: str) -> None:
    copy = shutil.copytree(model_path, tmp_path / "copy")
    (copy / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json: the tokenizer cannot be loaded \(") as caught:
        LLM(copy, **SMALL)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_chat_template_says_so(model_path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model_path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.jinja"))
    with LLM(copy, **SMALL) as llm, pytest.raises(ModelError, match="has no chat template"):
        llm.chat([{"role": "user", "content": "Hi?"}])


# ---- traces ----------------------------------------------------------------------------------------------------


def test_a_trace_can_go_to_a_file_a_recorder_or_a_function(model_path: Path, tmp_path: Path) -> None:
    file, recorder, called_with = tmp_path / "run.jsonl", Recorder(), list[AnyEvent]()
    for target in (file, recorder, called_with.append):
        with LLM(model_path, trace=target, **SMALL) as llm:
            llm.generate(PROMPTS, GREEDY)
    trace = read_trace(file)
    assert trace.complete
    assert (trace.header.backend, trace.header.model) == ("cpu", str(model_path))
    kinds = [type(event) for event in trace.events]
    assert kinds[0] is TraceStarted
    assert [type(event) for event in recorder.events] == [type(event) for event in called_with] == kinds


def test_a_trace_is_whole_even_if_nobody_closes(model_path: Path, tmp_path: Path) -> None:
    llm = LLM(model_path, trace=tmp_path / "run.jsonl.gz", **SMALL)
    llm.generate(PROMPTS, GREEDY)
    del llm
    gc.collect()
    assert read_trace(tmp_path / "run.jsonl.gz").complete


def test_a_closed_llm_says_so(model_path: Path) -> None:
    llm = LLM(model_path, **SMALL)
    llm.close()
    llm.close()
    with pytest.raises(UserError, match="the engine is closed"):
        llm.generate("x")


# ---- scripts written for nano-vLLM -----------------------------------------------------------------------------

README_SCRIPT = """
from nanovllm import LLM, SamplingParams
llm = LLM("/YOUR/MODEL/PATH", enforce_eager=True, tensor_parallel_size=1)
sampling_params = SamplingParams(temperature=0.6, max_tokens=256)
prompts = ["Hello, Nano-vLLM."]
outputs = llm.generate(prompts, sampling_params)
outputs[0]["text"]
"""
"""The usage example of nano-vLLM's README (https://github.com/GeeeekExplorer/nano-vllm)."""


def test_the_readme_script_runs_unchanged(model_path: Path) -> None:
    script = README_SCRIPT.replace("/YOUR/MODEL/PATH", str(model_path))
    script += 'assert isinstance(outputs[0]["text"], str)\n'
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_texts_from_ones_own_chat_template_run(model_path: Path) -> None:
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(str(model_path))
    prompts = [
        own.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        for text in ("introduce yourself", "list all prime numbers within 100")
    ]
    llm = LLM(str(model_path), enforce_eager=True, tensor_parallel_size=1, **SMALL)
    outputs = llm.generate(prompts, SamplingParams(temperature=0.6, max_tokens=30))
    assert [output.prompt for output in outputs] == prompts
    assert all(output["text"] == own.decode(output["token_ids"], skip_special_tokens=True) for output in outputs)


def test_a_benchmark_with_token_ids_and_one_set_of_parameters_each_runs(llm: LLM) -> None:
    rng = Random(0)
    prompts = [[rng.randint(0, 400) for _ in range(rng.randint(10, 40))] for _ in range(8)]
    params = [SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=rng.randint(5, 20)) for _ in prompts]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(output["token_ids"]) for output in outputs] == [chosen.max_tokens for chosen in params]
