"""``nanovllm generate`` with a tiny model: prompts from everywhere, text at once or as it comes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from nanovllm.trace.events import RequestAdded, RequestFinished
from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import Outcome, RunCommand
from tests.cli.test_errors import assert_refused

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

GREEDY = ("--temperature", 0, "--max-tokens", 8, "--ignore-eos", "--kvcache-block-size", 16, "--device", "cpu")


@pytest.fixture
def generate(model_path: Path, run: RunCommand) -> RunCommand:
    """Runs ``nanovllm generate`` with the tiny model."""
    return lambda *arguments: run("generate", "--model", model_path, *GREEDY, *arguments)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_single_answer_is_text_alone(generate: RunCommand) -> None:
    outcome = generate("The quick brown fox")
    (row,) = rows(generate("The quick brown fox", "--json"))
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == row["text"].strip() + "\n"


def test_several_answers_stand_under_their_prompts(generate: RunCommand) -> None:
    outcome = generate("The quick", "brown fox")
    assert outcome.code == 0
    assert outcome.out.startswith("0: The quick\n")
    assert "\n\n1: brown fox\n" in outcome.out


def test_json_has_a_line_for_each_request(generate: RunCommand) -> None:
    first, second = rows(generate("The quick", "brown fox", "--json"))
    assert first.keys() == {"id", "prompt", "text", "token_ids", "finish_reason", "metrics"}
    assert (first["id"], first["prompt"], first["finish_reason"]) == (0, "The quick", "length")
    assert (second["id"], second["prompt"]) == (1, "brown fox")
    assert len(second["token_ids"]) == second["metrics"]["num_completion_tokens"] == 8
    assert second["metrics"]["ttft_s"] > 0


def test_prompts_come_from_arguments_a_file_and_standard_input_alike(
    generate: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\ufeffThe quick\n\nbrown fox\r\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfThe quick\n \nbrown fox"), "utf-8"))
    texts = [[row["text"] for row in rows(outcome)] for outcome in (
        generate("The quick", "brown fox", "--json"),
        generate("--file", path, "--json"),
        generate("--json"),
    )]  # fmt: skip
    assert texts[0] == texts[1] == texts[2]


def test_standard_input_that_is_no_text_is_named(generate: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\ncaf\xe9\n"), "utf-8"))
    outcome = generate("--json")
    assert (outcome.code, outcome.err) == (2, "error: standard input:2: is not text in UTF-8\n")


def test_a_workload_brings_its_own_ids_sampling_and_arrivals(generate: RunCommand, tmp_path: Path) -> None:
    path, trace = tmp_path / "load.jsonl", tmp_path / "trace.jsonl"
    path.write_text(
        '{"id": "text", "text": "The quick", "max_tokens": 3, "temperature": 0, "ignore_eos": true}\n'
        '{"id": "late", "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": true, "arrival_step": 2}\n'
        '{"id": "drawn", "prompt_len": 9, "max_tokens": 1, "ignore_eos": true}\n'
    )
    outcome = generate("--file", path, "--json", "--trace", trace)
    assert outcome.code == 0
    assert [(row["id"], len(row["token_ids"])) for row in rows(outcome)] == [("text", 3), ("drawn", 1), ("late", 2)]
    added = [event for event in read_trace(trace).events if type(event).__name__ == "RequestAdded"]
    assert [event.request for event in added] == ["text", "drawn", "late"]


def test_a_turn_waits_for_the_answer_before_it(generate: RunCommand, tmp_path: Path) -> None:
    path, trace = tmp_path / "talk.jsonl", tmp_path / "trace.jsonl"
    path.write_text(
        '{"id": "hello", "text": "The quick", "max_tokens": 3, "ignore_eos": true}\n'
        '{"id": "and then", "text": "brown", "max_tokens": 2, "ignore_eos": true, "after": "hello", "delay": 0.01}\n'
    )
    outcome = generate("--file", path, "--json", "--trace", trace)
    assert [(row["id"], len(row["token_ids"])) for row in rows(outcome)] == [("hello", 3), ("and then", 2)]
    events = read_trace(trace).events
    _, second = (event for event in events if isinstance(event, RequestAdded))
    end = next(event for event in events if isinstance(event, RequestFinished))
    assert end.request == "hello"
    assert end.time + 0.01 <= second.arrival <= second.time
    assert_refused(generate("--file", path, "--stream"), "--stream wants requests that are all there at the start")


def test_a_simulation_decides_as_the_run_that_it_repeats(
    generate: RunCommand, run: RunCommand, model_path: Path, tmp_path: Path
) -> None:
    path, real, simulated = (tmp_path / name for name in ("load.jsonl", "real.jsonl", "simulated.jsonl"))
    lines = ({"id": i, "prompt_len": 40 + i, "max_tokens": 30, "arrival_step": 2 * i} for i in range(4))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sizes = {
        "--num-kvcache-blocks": 10,
        "--kvcache-block-size": 16,
        "--max-num-batched-tokens": 32,
        "--max-model-len": 512,
    }
    options = [word for pair in sizes.items() for word in pair]
    assert generate("--file", path, "--trace", real, *options).code == 0
    recorded = ("--outputs", real, "--trace", simulated)
    assert run("simulate", path, "--model", model_path, *options, *recorded).code == 0
    outcome = run("trace", "diff", real, simulated)
    assert (outcome.code, outcome.out) == (0, "decisions identical\n")


def test_the_chat_template_is_used_unless_told_otherwise(generate: RunCommand) -> None:
    counts = {
        words: rows(generate("fox", "--json", *words))[0]["metrics"]["num_prompt_tokens"]
        for words in ((), ("--chat",), ("--no-chat",))
    }
    assert counts[()] == counts["--chat",] > counts["--no-chat",]


def test_what_is_streamed_adds_up_to_what_is_printed_at_once(generate: RunCommand) -> None:
    prompts = ("The quick", "brown fox", "jumps")
    whole, streamed = generate(*prompts), generate(*prompts, "--stream")
    assert streamed.code == 0
    assert [line.strip() for line in streamed.out.splitlines()] == [line.strip() for line in whole.out.splitlines()]


def test_streamed_json_tells_pieces(generate: RunCommand) -> None:
    pieces = rows(generate("The quick", "--stream", "--json"))
    (whole,) = rows(generate("The quick", "--json"))
    assert len(pieces) > 1
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [token for piece in pieces for token in piece["token_ids"]] == whole["token_ids"]
    assert pieces[-1]["finish_reason"] == whole["finish_reason"]
    assert pieces[-1]["metrics"].keys() == whole["metrics"].keys()


@pytest.mark.parametrize("how", [(), ("--json",), ("--stream",), ("--stream", "--json")], ids=" ".join)
def test_bad_requests_are_told_and_the_others_run(how: tuple[str, ...], generate: RunCommand) -> None:
    outcome = generate("fox", "dog " * 100, "The quick", *how, "--max-model-len", 60)
    assert outcome.code == 2
    assert outcome.err.startswith("error: request 1: prompt (")
    assert outcome.err.endswith("tokens, but max_model_len is 60\n")
    assert outcome.err.count("\n") == 1
    if how == ("--json",):
        assert [row["id"] for row in rows(outcome)] == [0, 2]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("fox", "--temperature", "-1"), "temperature=-1"),
        (("fox", "--top-p", "2"), "top_p=2"),
        (("fox", "--max-tokens", "0"), "max_tokens=0"),
        (("fox", "--stop", ""), "stop=('',)"),
        (("fox", "--max-model-len", "100000"), "max_model_len=100000"),
        (("fox", "--num-kvcache-blocks", "1", "--max-tokens", "20"), "KV blocks of 16 tokens, but the pool has 1"),
        (("fox", "--file", "prompts.txt"), "both as arguments and by --file"),
        (("fox", "--no-chat", "--system", "Be brief."), "--system"),
        (("",), "text=''"),
        (("--file", "EMPTY"), "there is no prompt in"),
        (("--file", "BYTES"), "BYTES:2: is not text in UTF-8"),
        (("fox", "caf\udce9"), "prompt 2 is not text in UTF-8"),
        (("fox", "caf\udce9", "--no-chat"), "prompt 2 is not text in UTF-8"),
        (("--file", "ARRIVALS.jsonl", "--stream"), "tells of arrivals"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line(words: tuple[str, ...], part: str, tmp_path: Path, generate: RunCommand) -> None:
    files = {
        "EMPTY": b"\n",
        "BYTES": b"fine\n\xff",
        "ARRIVALS.jsonl": b'{"id": 1, "text": "a", "max_tokens": 1, "arrival": 1}',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    outcome = generate(*(tmp_path / word if word in files else word for word in words))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert part in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_directory_that_lacks_a_file_is_one_line(
    missing: str, model_path: Path, tmp_path: Path, run: RunCommand
) -> None:
    for source in model_path.iterdir():
        if source.name != missing:
            (tmp_path / source.name).symlink_to(source)
    outcome = run("generate", "fox", "--model", tmp_path, "--device", "cpu")
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert str(tmp_path) in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("generate", "fox", "--model", "./MISSING"), "./MISSING"),
        (("generate", "fox", "--model", "smollm3"), "smollm2-135m"),
        (("models", "fetch", "smollm3"), "smollm2-135m"),
    ],
)
def test_a_model_that_is_not_there_is_one_line(words: tuple[str, ...], part: str, run: RunCommand) -> None:
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: model {words[-1]!r}")
    assert part in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_profile_is_written_beside_the_answers(generate: RunCommand, tmp_path: Path) -> None:
    outcome = generate("The quick brown fox", "--profile", tmp_path / "profile.json")
    assert (outcome.code, outcome.out) == (0, generate("The quick brown fox").out)
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event["name"].startswith("step ")]
    assert len(names) == 8
    assert "step 7 decode 1 seqs 1 tokens" in names


def test_a_profile_that_cannot_be_written_is_one_line(generate: RunCommand, tmp_path: Path) -> None:
    outcome = generate("The quick", "--profile", tmp_path / "no" / "profile.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: {tmp_path}/no/profile.json: cannot be written: No such file or directory\n"
