"""``nanovllm bench`` on a CPU, with a load of a few tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanovllm import __version__
from nanovllm.trace.check import check
from nanovllm.trace.events import StepFinished
from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import Outcome, RunCommand

pytest.importorskip("torch", reason="needs torch")

OPTIONS = ("--dummy-weights", "smollm2-135m", "--device", "cpu", "--num-kvcache-blocks", 4, "--num-threads", 1)


@pytest.fixture
def load(tmp_path: Path) -> Path:
    path = tmp_path / "load.jsonl"
    path.write_text('{"id": "a", "prompt_len": 9, "max_tokens": 3}\n{"id": "b", "prompt_len": 5, "max_tokens": 2}\n')
    return path


@pytest.fixture
def bench(load: Path, run: RunCommand) -> RunCommand:
    """Runs ``nanovllm bench`` on the load, once unless it is told otherwise."""
    return lambda *arguments: run("bench", load, *OPTIONS, "--repetitions", 1, *arguments)


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.code == 0
    return [json.loads(line) for line in outcome.out.splitlines()]


RATES = ("--copy-bandwidth", 1e12, "--matmul-rate", 1e15)


def test_json_has_what_was_measured(bench: RunCommand) -> None:
    [row] = rows(bench("--json", *RATES))
    assert {phase: times["num_steps"] for phase, times in row["steps"].items()} == {"prefill": 1, "decode": 2}
    assert row["tokens_per_s"] == pytest.approx(5 / row["wall_s"])
    assert 0 < row["share_of_bound"] < 1
    assert (row["num_kv_blocks"], row["is_traced"]) == (4, False)
    assert row["kv_pool_gib"] == pytest.approx(4 * 256 * 2 * 30 * 3 * 64 * 4 / 2**30)
    assert row["facts"]["nanovllm"] == __version__
    assert row["facts"]["attention"] == "torch"
    assert sum(times["duration_s"]["mean"] * times["num_steps"] for times in row["steps"].values()) <= row["wall_s"]
    for times in row["steps"].values():
        assert 0 < times["host_s"]["mean"] < times["duration_s"]["mean"]
        assert 0 < times["device_s"]["mean"] < times["duration_s"]["mean"]


def test_the_tables_show_runs_and_steps(bench: RunCommand) -> None:
    outcome = bench("--compare-tracing")
    assert outcome.code == 0
    assert "0 traced" not in outcome.out
    assert "1 traced" in outcome.out
    assert "wait: of the time, what the device waits for the host" in outcome.out
    assert "KV pool: 4 blocks, 0.04 GiB" in outcome.out
    assert "device cpu, dtype float32, attention torch" in outcome.out
    assert "tracing costs " in outcome.out


def test_tracing_is_measured_in_pairs(bench: RunCommand) -> None:
    *runs, cost = rows(bench("--repetitions", 2, "--compare-tracing", "--json"))
    told = [(row["repetition"], row["is_traced"]) for row in runs]
    assert told == [(0, False), (1, False), (2, False), (2, True), (3, True), (3, False)]
    silent, traced = (sum(row["wall_s"] for row in runs[2:] if row["is_traced"] is kind) for kind in (False, True))
    assert cost["tracing_cost"] == pytest.approx(1 - silent / traced)


def test_a_trace_and_a_profile_are_of_runs_of_their_own(bench: RunCommand, tmp_path: Path) -> None:
    trace, profile = tmp_path / "trace.jsonl.gz", tmp_path / "profile.json"
    [row] = rows(bench("--json", "--trace", trace, "--profile", profile))
    assert row["repetition"] == 0
    recorded = read_trace(trace)
    assert recorded.complete
    assert check(recorded.events) == []
    assert recorded.header.facts["device"] == "cpu"
    assert recorded.header.model == "smollm2-135m"
    assert all(event.device for event in recorded.events if isinstance(event, StepFinished))
    assert "step 2 decode 1 seqs 1 tokens" in profile.read_text()


def test_what_cannot_be_read_or_written_is_one_line(run: RunCommand, bench: RunCommand, load: Path) -> None:
    outcome = run("bench", "nosuch", *OPTIONS)
    assert (outcome.code, outcome.err.startswith("error: nosuch: ")) == (2, True)
    for option in ("--trace", "--profile"):
        outcome = bench(option, load.parent / "no" / "file")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == f"error: {load.parent}/no/file: cannot be written: No such file or directory\n"
        assert bench(option, load).code == 2
        assert "is read by this command" in bench(option, load).err
    assert load.read_text().startswith('{"id": "a"')


def test_trace_and_profile_are_two_files(bench: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    outcome = bench("--trace", path, "--profile", path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {path}: is written twice by this command")
    assert not path.exists()


def test_a_load_that_cannot_run_is_one_line(run: RunCommand, load: Path) -> None:
    load.write_text('{"id": "a", "prompt_len": 9000, "max_tokens": 3, "arrival": 1}\n')
    outcome = run("bench", load, *OPTIONS)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"error: {load}: none of its requests can run; request 'a': ")


def test_a_cpu_has_no_bound_unless_its_rates_are_given(bench: RunCommand) -> None:
    [row] = rows(bench("--json"))
    assert (row["bound_tokens_per_s"], row["share_of_bound"]) == (None, None)
    assert "–" in bench().out


def test_a_request_that_can_never_run_is_told_by_the_exit_code(bench: RunCommand, load: Path) -> None:
    load.write_text(load.read_text() + '{"id": "c", "prompt_len": 9000, "max_tokens": 3}\n')
    outcome = bench("--json")
    assert outcome.code == 1
    assert "request 'c'" in outcome.err


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize("option", ["--copy-bandwidth", "--matmul-rate"])
def test_a_rate_is_a_number_above_0(run: RunCommand, option: str, rate: str) -> None:
    outcome = run("bench", "bs1", "--dummy-weights", "smollm2-135m", option, rate)
    name = option.removeprefix("--").replace("-", "_")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: {name}={float(rate)} is not allowed: a number above 0\n"
