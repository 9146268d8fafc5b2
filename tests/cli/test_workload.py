"""``nanovllm workload``: files that are made, converted and summed up."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from nanovllm.cli import workload_input
from nanovllm.cli.workload_input import WorkloadInput
from nanovllm.errors import ConfigError
from sim.readers import any_format
from sim.readers.any_format import Reading
from sim.workload import WorkloadRequest, read_workload, write_workload
from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused
from tests.cli.test_simulate import AZURE


def test_made_requests_are_as_asked_for(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl"
    words = "--num-requests 20 --prompt-len uniform:5,9 --output-len lognormal:30,0.5,high=40 --arrivals steps:2,3"
    assert run("workload", "make", path, *words.split()).code == 0
    load = read_workload(path)
    assert [request.arrival_step for request in load] == [3 * (index // 2) for index in range(20)]
    assert {request.prompt_len for request in load} <= set(range(5, 10))
    assert max(request.max_tokens for request in load) <= 40


def test_made_requests_may_share_prefixes_and_hide_their_lengths(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl.gz"
    words = "--num-requests 30 --prompt-len 10 --output-len 7 --num-prefixes 2 --prefix-len 64 --max-tokens 100"
    assert run("workload", "make", path, *words.split()).code == 0
    load = read_workload(path)
    assert {request.prefix for request in load} == {"prefix-0", "prefix-1"}
    assert {(request.prompt_len, request.max_tokens, request.output_len) for request in load} == {(74, 100, 7)}


def test_made_conversations_grow_turn_by_turn(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "talks.jsonl"
    words = "--num-sessions 3 --num-turns 4 --message-len 10 --answer-len 20 --system-len 5 --arrivals gamma:2,3"
    assert run("workload", "make-sessions", path, *words.split()).code == 0
    turns = read_workload(path)
    lengths = {request.id: len(request.prompt or []) for request in turns}
    assert [turn.after for turn in turns[:4]] == [(), ("0-0",), ("0-1",), ("0-2",)]
    assert all(turn.delay > 0 for turn in turns if turn.after)
    assert lengths == {f"{talk}-{turn}": 15 + 30 * turn for talk in range(3) for turn in range(4)}


def test_made_agents_call_on_each_other(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "agents.jsonl"
    lengths = "--num-calls 3 --task-len 10 --answer-len 20 --tool-output-len 30 --system-len 40 --sub-system-len 5"
    words = f"--num-agents 2 --num-sub-agents 2 --mean-tool-s 0 {lengths} --arrivals poisson:1"
    assert run("workload", "make-agents", path, *words.split()).code == 0
    calls = {str(request.id): request for request in read_workload(path)}
    assert len(calls) == 2 * (3 + 2 * 3)
    assert [len(calls[f"1-{number}"].prompt or []) for number in range(3)] == [50, 50 + 20 + 2 * 20, 110 + 20 + 30]
    assert [len(calls[f"1-sub0-{number}"].prompt or []) for number in range(3)] == [15, 65, 115]
    assert calls["0-0"].arrival is not None
    assert [calls[name].after for name in ("0-0", "0-sub1-0", "0-1", "0-2")] == [
        (),
        ("0-0",),
        ("0-sub0-2", "0-sub1-2"),
        ("0-1",),
    ]


@pytest.mark.parametrize("command", ["make", "make-sessions"])
def test_same_seed_same_file(command: str, tmp_path: Path, run: RunCommand) -> None:
    contents = []
    for seed in (1, 1, 2):
        path = tmp_path / "load.jsonl"
        assert run("workload", command, path, "--arrivals", "poisson:3", "--seed", seed).code == 0
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_a_public_trace_becomes_a_workload(tmp_path: Path, run: RunCommand) -> None:
    source, target = tmp_path / "azure.csv", tmp_path / "load.jsonl"
    source.write_text(AZURE)
    assert run("workload", "convert", source, target, "--skip", 1, "--trace-max-tokens", 50).code == 0
    shown = [(request.prompt_len, request.max_tokens, request.output_len) for request in read_workload(target)]
    assert shown == [(396, 50, 50), (20, 50, 3)]


def test_a_public_trace_is_not_written_over(tmp_path: Path, run: RunCommand) -> None:
    source = tmp_path / "azure.csv"
    source.write_text(AZURE)
    (tmp_path / "link.csv").symlink_to(source)
    for target in (source, tmp_path / "link.csv"):
        assert_refused(run("workload", "convert", source, target), "is read by this command")
    assert source.read_text() == AZURE


def test_check_sums_up_what_is_in_a_file(workload: Path, run: RunCommand) -> None:
    told: dict[str, Any] = json.loads(run("workload", "check", workload, "--json").out)
    assert told == {
        "num_requests": 3,
        "num_follow_ups": 0,
        "num_prompt_tokens": 111,
        "longest_prompt_tokens": 41,
        "num_texts": 0,
        "num_prefixes": 1,
        "max_tokens": 35,
        "num_output_tokens": 20,
        "last_arrival_s": None,
        "last_arrival_step": 4,
    }
    outcome = run("workload", "check", workload)
    assert outcome.code == 0
    assert "longest prompt tokens" in outcome.out
    assert "│ last arrival step     │ 4 " in outcome.out


def test_check_counts_what_waits_for_others(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl"
    fields = {"prompt_len": 4, "max_tokens": 1}
    lines = [{"id": 0, "arrival": 1.5}, {"id": 1, "after": 0, "delay": 9}, {"id": 2, "after": [0, 1]}]
    path.write_text("".join(json.dumps(line | fields) + "\n" for line in lines))
    told = json.loads(run("workload", "check", path, "--json").out)
    assert (told["num_requests"], told["num_follow_ups"], told["last_arrival_s"]) == (3, 2, 1.5)
    assert "│ num follow ups        │ 2 " in run("workload", "check", path).out
    cut = path.read_text()[:-20]
    path.write_text(cut)
    assert_refused(run("workload", "check", path), f"{path}:3: is not JSON")


def test_the_last_arrival_is_told_to_three_digits(run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text('{"id": 0, "prompt_len": 4, "max_tokens": 1, "arrival": 76.97126103083886}\n')
    assert "│ last arrival          │ 77.0 s " in run("workload", "check", path).out


def test_models_are_listed(run: RunCommand) -> None:
    assert "smollm2-135m" in run("models").out
    rows = [json.loads(line) for line in run("models", "--json").out.splitlines()]
    assert {"name": "qwen3-0.6b", "num_parameters": 596049920}.items() <= next(
        row for row in rows if row["name"] == "qwen3-0.6b"
    ).items()


def test_files_are_read_here_as_everywhere() -> None:
    assert workload_input.FORMATS == any_format.FORMATS
    options, known = ({field.name: field.default for field in fields(of)} for of in (WorkloadInput, Reading))
    assert options == known
    with pytest.raises(ConfigError, match=r"^limit=0 is not allowed"):
        WorkloadInput(limit=0)


def test_what_is_as_if_it_were_absent_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    write_workload(path, [WorkloadRequest(id=0, prompt_len=4, max_tokens=2, arrival=1.5, after=(), delay=float("0"))])
    assert json.loads(path.read_text()) == {"id": 0, "prompt_len": 4, "max_tokens": 2, "arrival": 1.5}
