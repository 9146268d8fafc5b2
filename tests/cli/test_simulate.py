"""``nanovllm simulate``: figures to read, JSON, and the formats that it takes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:48.9951690,396,109
2023-11-16 18:15:50.1000000,20,3
"""
MOONCAKE = """{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 500, "input_length": 700, "output_length": 6, "hash_ids": [1, 3]}
"""
SHAREGPT = """{"input_tok_ids": [5, 6, 7], "output_toks": 4, "arrival_time_ns": 0}
{"input_tok_ids": [5, 6], "output_toks": 2, "arrival_time_ns": 1000000}
"""


def test_figures_are_shown_in_words(workload: Path, run: RunCommand) -> None:
    outcome = run("simulate", workload)
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("time to first token", "3 completed", "prefix cache", "KV pool", "of serving simulated in"):
        assert part in outcome.out


@pytest.mark.parametrize(
    ("words", "times"),
    [
        ("", "roofline of h200 (data sheet, not measured), qwen3-0.6b"),
        ("--gpu l4 --model qwen3-8b", "roofline of l4 (data sheet, not measured), qwen3-8b"),
        ("--replicas 2 --gpu l4", "roofline of l4 (data sheet, not measured), qwen3-0.6b"),
        ("--calibration h200-qwen3-0.6b", "calibration h200-qwen3-0.6b, NVIDIA H200"),
    ],
)
def test_where_the_times_come_from_is_told(words: str, times: str, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text('{"id": 0, "prompt_len": 9, "max_tokens": 2}\n')
    for command in ("simulate", "policies"):
        if command == "policies" and "--replicas" in words:
            continue
        assert f"times: {times}\n" in run(command, path, *words.split()).out


def test_json_tells_the_run_and_its_figures(workload: Path, run: RunCommand) -> None:
    told = json.loads(run("simulate", workload, "--json").out)
    assert told["complete"] is True
    assert told["rejected"] == []
    assert told["metrics"]["output_tokens"] == 12 + 5 + 3
    assert told["time_s"] == pytest.approx(told["metrics"]["duration_s"])
    assert sum(told["time_spent"].values()) == pytest.approx(told["metrics"]["busy_s"])


@pytest.mark.parametrize(
    ("name", "text", "num_requests", "num_prompt_tokens"),
    [("a.csv", AZURE, 3, 790), ("m.jsonl", MOONCAKE, 2, 1300), ("s.jsonl", SHAREGPT, 2, 5)],
)
def test_public_traces_are_known_by_their_first_line(
    name: str, text: str, num_requests: int, num_prompt_tokens: int, tmp_path: Path, run: RunCommand
) -> None:
    (tmp_path / name).write_text(text)
    metrics = json.loads(run("simulate", tmp_path / name, "--json").out)["metrics"]
    assert (metrics["num_completed"], metrics["prompt_tokens"]) == (num_requests, num_prompt_tokens)


def test_a_part_of_a_trace_faster(tmp_path: Path, run: RunCommand) -> None:
    path, trace = tmp_path / "azure.csv", tmp_path / "trace.jsonl"
    path.write_text(AZURE)
    assert run("simulate", path, "--limit", 2, "--rate-scale", 2, "--trace", trace).code == 0
    added = [event for event in read_trace(trace).events if type(event).__name__ == "RequestAdded"]
    assert [event.arrival for event in added] == [0.0, pytest.approx(2.314579 / 2)]


def test_a_part_of_a_workload_faster(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl"
    lines = ({"id": index, "prompt_len": 9, "max_tokens": 2, "arrival": index / 10} for index in range(4))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads(run("workload", "check", path, "--json", "--skip", 1, "--limit", 2, "--rate-scale", 4).out)
    assert (told["num_requests"], told["last_arrival_s"]) == (2, pytest.approx(0.1 / 4))


def test_every_option_of_the_engine_reaches_it(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    trace = tmp_path / "trace.jsonl"
    words = (
        "--max-num-seqs 2 --max-num-batched-tokens 30 --no-enable-prefix-caching --watermark-blocks 1 --eos 7 --eos 9"
    )
    run("simulate", workload, "--trace", trace, *words.split())
    config = read_trace(trace).header.config
    assert (config["max_num_seqs"], config["max_num_batched_tokens"], config["watermark_blocks"]) == (2, 30, 1)
    assert (config["enable_prefix_caching"], config["eos"]) == (False, [7, 9])


def test_texts_need_a_tokenizer(model_path: Path, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": 1, "text": "The quick brown fox", "max_tokens": 3}\n')
    outcome = run("simulate", path)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "without a tokenizer" in outcome.err
    told = json.loads(run("simulate", path, "--tokenizer", model_path, "--model", model_path, "--json").out)
    assert told["metrics"]["num_completed"] == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("words", [(), ("--replicas", 2)])
def test_a_full_disk_costs_the_trace_and_not_the_figures(
    words: tuple[object, ...], workload: Path, tmp_path: Path, run: RunCommand
) -> None:
    for name in ("run.jsonl", "run.replica-0.jsonl", "run.replica-1.jsonl"):
        (tmp_path / name).symlink_to("/dev/full")
    outcome = run("simulate", workload, "--limit", 2, *words, "--trace", tmp_path / "run.jsonl", "--json")
    assert outcome.code == 2
    assert json.loads(outcome.out)["metrics"]["output_tokens"] == 12 + 5
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert outcome.err.endswith(".jsonl: cannot be written: No space left on device\n")


def test_traces_that_cannot_be_written_cost_no_run(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    (tmp_path / "run.replica-1.jsonl").mkdir()
    outcome = run("simulate", workload, "--limit", 2, "--replicas", 2, "--trace", tmp_path / "run.jsonl")
    assert_refused(outcome, "run.replica-1.jsonl: cannot be written: Is a directory")
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and path.name.startswith("run")] == []


def test_the_same_workload_gives_the_same_trace(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    paths = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for path in paths:
        assert run("simulate", workload, "--trace", path).code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
