"""``nanovllm trace metrics`` of several traces: the figures of each, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanovllm.cli.trace_metrics import print_side_by_side, short_names
from nanovllm.trace.jsonl import write_trace
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.metrics.slo import Slo
from tests.cli.conftest import RunCommand
from tests.trace.metrics.test_run_metrics import RUN
from tests.trace.runs import preempting_run

SLO = Slo(time_to_first_token_s=3, time_per_output_token_s=1.5)


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs, of which the second preempts."""
    paths = tmp_path / "plain.jsonl", tmp_path / "tight.jsonl"
    for path, events in zip(paths, (RUN, preempting_run()), strict=True):
        write_trace(events, path)
    return paths


def rows_of(table: str) -> dict[tuple[str, str], list[str]]:
    """By group and name, the other cells."""
    rows, group = {}, ""
    for line in table.splitlines():
        if line.startswith("│"):
            first, name, *cells = (cell.strip() for cell in line.strip("│").split("│"))
            group = first or group
            rows[group, name] = cells
    return rows


def test_two_runs_with_their_difference(traces: tuple[Path, Path], run: RunCommand) -> None:
    outcome = run("trace", "metrics", *traces)
    assert (outcome.code, outcome.err) == (0, "")
    headings = [word.strip() for word in outcome.out.splitlines()[1].strip("┃").split("┃")]
    assert headings == ["", "", "plain.jsonl", "tight.jsonl", "difference"]
    assert "latencies: of the completed requests; difference: (second - first) / first" in outcome.out
    rows = rows_of(outcome.out)
    assert rows["time to first token", "mean"] == ["2.75 s", "9.00 ms", "-99.7%"]
    assert rows["requests", "completed"] == ["2", "2", "="]
    assert rows["requests", "refused"] == ["1", "0", "-100.0%"]
    assert rows["duration", "in all"] == ["7.00 s", "33.0 ms", "-99.5%"]
    assert rows["tokens", "generated"] == ["4", "19", "+375.0%"]
    assert rows["steps", "decode"] == ["1", "13", "+1,200.0%"]
    assert rows["KV pool", "at the most"] == ["30.0%", "100.0%", "+233.3%"]
    assert rows["preemptions", "in all"] == ["0", "1", "–"]
    assert rows["preemptions", "tokens recomputed"] == ["0", "7", "–"]
    assert ("requests", "aborted") not in rows, "neither run has any"
    assert not any(group in ("requests that meet", "goodput") for group, _ in rows), "no limits are given"


def test_each_figure_is_that_of_the_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    both = [compute_metrics(events, slo=SLO) for events in (RUN, preempting_run())]
    print_side_by_side(["a", "b"], both)
    rows = rows_of(capsys.readouterr().out)
    for column, metrics in enumerate(both):
        print_side_by_side(["one"], [metrics])
        alone = rows_of(capsys.readouterr().out)
        assert {key: [rows[key][column]] for key in alone} == alone
        assert all(rows[key][column] in ("0", "–") for key in rows.keys() - alone.keys())


def test_requests_within_limits(traces: tuple[Path, Path], run: RunCommand) -> None:
    rows = rows_of(run("trace", "metrics", *traces, "--slo-ttft", 3, "--slo-tpot", 1.5).out)
    assert rows["requests that meet", "time to first token ≤ 3 s"][0] == "66.7%"
    assert rows["requests that meet", "time per output token ≤ 1.5 s"][0] == "33.3%"
    assert rows["requests that meet", "all of them"][0] == "33.3% (1 of 3)"
    assert rows["goodput", "requests/s"][0] == "0.14"
    assert rows["fluidity index", "mean"][0] == "0.833"
    assert rows["fluidity index", "0.9 or more"][0] == "33.3%"


def test_where_the_time_of_steps_went_stands_by_phase(trace: Path, traces: tuple[Path, Path], run: RunCommand) -> None:
    rows = rows_of(run("trace", "metrics", trace, traces[0]).out)
    told = json.loads(run("trace", "metrics", trace, "--json").out)["step_times"]
    for phase in told:
        assert rows[f"{phase} step", "device waits for program, share"][1:] == ["–", "–"], "the other does not tell it"
    assert {group for group, _ in rows if group.endswith(" step")} == {f"{phase} step" for phase in told}


def test_three_runs_have_no_difference(traces: tuple[Path, Path], run: RunCommand) -> None:
    outcome = run("trace", "metrics", *traces, traces[0])
    assert outcome.code == 0
    assert "difference" not in outcome.out
    assert rows_of(outcome.out)["duration", "in all"] == ["7.00 s", "33.0 ms", "7.00 s"]


def test_runs_without_a_request_have_no_figures(traces: tuple[Path, Path], tmp_path: Path, run: RunCommand) -> None:
    empty = tmp_path / "empty.jsonl"
    write_trace(RUN[:1], empty)
    rows = rows_of(run("trace", "metrics", traces[0], empty).out)
    assert rows["time to first token", "p99"][1:] == ["–", "–"]
    assert rows["duration", "in steps"][1:] == ["–", "–"]


@pytest.mark.parametrize("options", [(), ("--requests",), ("--slo-ttft", "3")], ids=" ".join)
def test_json_has_the_figures_of_the_single_traces(
    options: tuple[str, ...], traces: tuple[Path, Path], run: RunCommand
) -> None:
    outcome = run("trace", "metrics", *traces, "--json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        "traces": [
            {"trace": str(path), "metrics": json.loads(run("trace", "metrics", path, "--json", *options).out)}
            for path in traces
        ]
    }


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_what_is_no_trace_is_a_line_each_and_the_others_are_told(
    options: tuple[str, ...], traces: tuple[Path, Path], workload: Path, tmp_path: Path, run: RunCommand
) -> None:
    missing = tmp_path / "missing.jsonl"
    outcome = run("trace", "metrics", traces[0], missing, traces[1], workload, *options)
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        f"error: {missing}: cannot be read: No such file or directory",
        f"error: {workload}:1: is no event: a trace begins with a line of type trace_started",
    ]
    assert outcome.out == run("trace", "metrics", *traces, *options).out
    outcome = run("trace", "metrics", missing, workload, *options)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 2)


def test_a_trace_that_was_cut_is_told_as_far_as_it_goes(traces: tuple[Path, Path], run: RunCommand) -> None:
    path = traces[1]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))
    outcome = run("trace", "metrics", *traces)
    assert outcome.code == 0
    assert outcome.err.startswith(f"note: {path}:{len(lines) // 2}: ")
    assert outcome.err.count("\n") == 1
    assert rows_of(outcome.out)["requests", "unfinished"][0] == "0"


def test_a_limit_that_is_none_is_one_line(traces: tuple[Path, Path], run: RunCommand) -> None:
    outcome = run("trace", "metrics", *traces, "--slo-tpot", "0")
    message = "error: slo_tpot=0.0 is not allowed: a number of seconds, 1e-09 or more\n"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"]),
        (["x/1/run.jsonl", "x/2/run.jsonl"], ["1/run.jsonl", "2/run.jsonl"]),
        (["1/x/run.jsonl", "2/x/run.jsonl", "b.jsonl"], ["1/x/run.jsonl", "2/x/run.jsonl", "b.jsonl"]),
        (["run.jsonl", "old/run.jsonl"], ["run.jsonl", "old/run.jsonl"]),
        (["x/run.jsonl", "x/run.jsonl"], ["run.jsonl", "run.jsonl"]),
        (["/run.jsonl", "run.jsonl"], ["/run.jsonl", "run.jsonl"]),
    ],
)
def test_names_are_as_long_as_it_takes_to_tell_them_apart(paths: list[str], names: list[str]) -> None:
    assert short_names(list(map(Path, paths))) == [str(Path(name)) for name in names]


def test_a_name_is_no_markup_and_gives_no_orders(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "[red]\x1b[31m.jsonl"
    write_trace(RUN, path)
    outcome = run("trace", "metrics", path, path)
    assert outcome.out.count(r"[red]\x1b[31m.jsonl") == 2
