"""``nanovllm policies``: the same load under several policies, side by side."""

from __future__ import annotations

import json
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanovllm.config import POLICIES
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.scheduler import Scheduler
from nanovllm.trace.events import TraceStarted
from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import RunCommand
from tests.cli.test_simulate import AZURE
from tests.viz.figures.drawn import texts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def test_a_row_a_policy(workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, "--policies", "mixed,shortest_first")
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("│ mixed ", "│ shortest_first ", "between two tokens p50", "longest", "simulated in"):
        assert part in outcome.out


def test_json_has_the_figures_of_the_single_runs(workload: Path, run: RunCommand) -> None:
    told = json.loads(run("policies", workload, "--max-num-seqs", 2, "--json").out)["policies"]
    assert [each["policy"] for each in told] == ["prefill_first", "mixed"]
    for each in told:
        words = ("--policy", each["policy"], "--max-num-seqs", 2, "--json")
        assert each["metrics"] == json.loads(run("simulate", workload, *words).out)["metrics"]


def test_limits_are_told_of_each_policy(workload: Path, run: RunCommand) -> None:
    limits = ("--slo-ttft", 0.01, "--slo-itl", 1e-9)
    outcome = run("policies", workload, "--max-num-seqs", 1, *limits)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [[cell.strip() for cell in line.strip("┃│").split("│")] for line in outcome.out.splitlines()]
    for words in ("time to first token ≤ 0.01 s", "between two tokens ≤ 1e-09 s", "all of them", "goodput: requests/s"):
        assert words in outcome.out
    told = json.loads(run("policies", workload, "--max-num-seqs", 1, *limits, "--json").out)["policies"]
    for each in told:
        slo = each["metrics"]["slo"]
        assert slo["limits"] == {"time_to_first_token_s": 0.01, "inter_token_latency_s": 1e-9}
        assert (slo["num_met"], slo["attainment_by_limit"]["inter_token_latency_s"]) == (0, 0.0)
        first_token = f"{slo['attainment_by_limit']['time_to_first_token_s']:.1%}"
        assert [each["policy"], first_token, "0.0%", "0.0%", "0.00", "0.0"] in rows
    simulated = json.loads(run("simulate", workload, "--max-num-seqs", 1, *limits, "--json").out)
    assert simulated["metrics"]["slo"] == told[0]["metrics"]["slo"]


def test_limits_that_all_keep_to_leave_throughput_as_it_is(workload: Path, run: RunCommand) -> None:
    told = json.loads(run("policies", workload, "--slo-ttft", 10, "--slo-e2e", 10, "--json").out)["policies"]
    for metrics in (each["metrics"] for each in told):
        assert metrics["slo"]["attainment"] == 1.0
        assert metrics["slo"]["goodput_requests_per_s"] == metrics["requests_per_s"]
        assert metrics["slo"]["goodput_tokens_per_s"] == metrics["output_tokens_per_s"]


def test_without_limits_nothing_is_said_of_them(workload: Path, run: RunCommand) -> None:
    assert "requests that meet" not in run("policies", workload).out
    told = json.loads(run("policies", workload, "--json").out)["policies"]
    assert [each["metrics"]["slo"] for each in told] == [None, None]


def test_a_figure_tells_of_the_limits(
    workload: Path, tmp_path: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []  # viz.figures.plot is a function, too
    monkeypatch.setattr(import_module("viz.figures.plot"), "save", lambda figure, path: drawn.append(figure))
    for limits in ((), ("--slo-ttft", 10), ("--slo-itl", 1e-3, "--slo-ttft", 10)):
        assert run("policies", workload, "--figure", tmp_path / "gaps.png", *limits).code == 0
    without, in_time, stalled = map(texts_of, drawn)
    assert {"prefill_first", "mixed", " 200 ms"} <= without
    assert {"prefill_first: 100.0% of all requests met the SLO", " 200 ms"} <= in_time
    assert {"got no token for 1 ms or more", " 1 ms"} <= stalled


def test_a_figure_is_drawn(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "gaps.png"
    assert run("policies", workload, "--figure", path).code == 0
    around_all = path.read_bytes()
    assert run("policies", workload, "--figure", path, "--window", "0:0.01").code == 0
    assert path.read_bytes()[:8] == around_all[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.read_bytes() != around_all


def test_more_policies_than_colours_are_refused_before_they_run(
    workload: Path, tmp_path: Path, run: RunCommand
) -> None:
    path = tmp_path / "gaps.png"
    outcome = run("policies", workload, "--policies", ",".join(POLICIES), "--figure", path)
    assert (outcome.code, outcome.out, path.exists()) == (2, "", False)
    assert "is not allowed: for at most 3 policies, here are 4" in outcome.err


def test_where_there_is_nothing_to_draw_there_are_figures_to_read(tmp_path: Path, run: RunCommand) -> None:
    load = tmp_path / "load.jsonl"
    load.write_text('{"id": 0, "prompt_len": 8, "max_tokens": 1}\n')
    outcome = run("policies", load, "--figure", tmp_path / "gaps.png")
    assert outcome.code == 2
    assert "│ mixed " in outcome.out
    assert "there is no gap, as no request got two tokens" in outcome.err


class ShortestPromptFirst(Scheduler):
    """A policy of one's own."""

    def schedule(self) -> ScheduledBatch:
        self.waiting = deque(sorted(self.waiting, key=lambda seq: (not seq.block_table, seq.num_tokens)))
        return super().schedule()


OWN = f"{__name__}:ShortestPromptFirst"


def test_a_policy_of_ones_own_by_its_name(workload: Path, tmp_path: Path, run: RunCommand) -> None:
    words = ("--max-num-seqs", 1, "--json")
    told = json.loads(run("policies", workload, "--policies", f"prefill_first,{OWN}", *words).out)["policies"]
    assert [each["policy"] for each in told] == ["prefill_first", OWN]
    assert told[0]["metrics"]["queueing_s"]["mean"] > told[1]["metrics"]["queueing_s"]["mean"]
    path = tmp_path / "own.jsonl"
    outcome = run("simulate", workload, "--policy", OWN, "--trace", path, *words)
    assert json.loads(outcome.out)["metrics"] == told[1]["metrics"]
    header = read_trace(path).events[0]
    assert isinstance(header, TraceStarted)
    assert header.policy == OWN


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (f"simulate azure.csv --policy {OWN}", True),
        (f"policies azure.csv --policies mixed,{OWN}", True),
        ("simulate azure.csv --replicas 2 --router least_loaded", True),
        (f"simulate azure.csv --policy {OWN} --trace-max-tokens 99", False),
        (f"policies load.jsonl --policies mixed,{OWN}", False),
        ("policies azure.csv --policies shortest_first,mixed", False),  # it looks at prompts only
        ("simulate azure.csv --router least_loaded", False),
        ("simulate azure.csv --replicas 2", False),
    ],
)
def test_who_may_rank_by_the_true_lengths_of_answers_is_told(
    words: str, is_told: bool, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunCommand
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("azure.csv").write_text(AZURE)
    Path("load.jsonl").write_bytes(workload.read_bytes())
    outcome = run(*words.split())
    assert outcome.code == 0
    note = "note: max_tokens are the true answer lengths, which no server knows: --trace-max-tokens N hides them\n"
    assert outcome.err == (note if is_told else "")


@pytest.mark.parametrize(
    ("command", "policy", "reason"),
    [
        ("simulate", "no_such_module:Own", "module 'no_such_module' cannot be imported (ModuleNotFoundError: "),
        ("simulate", f"{__name__}:Own", f"module {__name__!r} has no class 'Own'"),
        ("generate", f"{__name__}:Path", "a subclass of nanovllm.engine.scheduler.Scheduler is needed"),
    ],
)
def test_a_policy_that_is_none(command: str, policy: str, reason: str, workload: Path, run: RunCommand) -> None:
    if command == "generate":
        pytest.importorskip("torch", reason="needs torch")
        pytest.importorskip("transformers", reason="needs transformers")
    outcome = run(command, workload, "--policy", policy)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"error: policy={policy!r} is not allowed: {reason}")


class ReturnsList(Scheduler):
    """A policy with a mistake in it."""

    def schedule(self) -> Any:
        return list(super().schedule().sequences)


@pytest.mark.parametrize("words", ["", "--lookahead", "--live"])
def test_a_schedule_that_gives_no_batch_is_one_line(words: str, workload: Path, run: RunCommand) -> None:
    policy = f"{__name__}:ReturnsList"
    outcome = run("simulate", workload, "--policy", policy, *words.split())
    reason = "its schedule() returned list, a ScheduledBatch is needed"
    assert outcome.code == 2
    assert outcome.err == f"error: policy={policy!r} is not allowed: {reason}\n"


def test_a_request_that_can_never_run_is_told_once(workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, "--max-model-len", 50)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "request 'a'" in outcome.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--policies fifo", "policies='fifo' is not allowed: one of prefill_first, mixed, priority, shortest_first"),
        ("--policies mixed,mixed", "policies='mixed,mixed' is not allowed"),
        ("--window 3", "window='3' is not allowed: the first and the last second, such as 12:30.5"),
        ("--window 5:2", "window='5:2' is not allowed"),
        ("--window 0:inf", "window='0:inf' is not allowed"),
        ("--window nan:1", "window='nan:1' is not allowed"),
        ("--window 0:1", "window='0:1' is not allowed: only together with figure"),
        ("--figure gaps.gif", "gaps.gif: is no name for a picture"),
        ("--policy mixed", "no such option: --policy"),
        ("--slo-ttft 0", "slo_ttft=0.0 is not allowed: a number of seconds, 1e-09 or more"),
        ("--slo-itl inf", "slo_itl=inf is not allowed: a number of seconds, 1e-09 or more"),
        ("--slo-e2e soon", "invalid value for '--slo-e2e'"),
    ],
)
def test_mistakes_are_one_line(words: str, problem: str, workload: Path, run: RunCommand) -> None:
    outcome = run("policies", workload, *words.split())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"error: {problem}")
