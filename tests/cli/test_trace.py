"""``nanovllm trace``: what is listed, judged, compared and exported, of whole traces and of such that were cut."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import Outcome, RunCommand
from tests.cli.test_main import COMMANDS as ALL_COMMANDS
from viz.figures import KINDS

COMMANDS = ("show", "metrics", "check", "perfetto", "html")


def test_show_lists_every_step(trace: Path, run: RunCommand) -> None:
    outcome = run("trace", "show", trace)
    num_steps = sum(type(event).__name__ == "StepStarted" for event in read_trace(trace).events)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("run on backend simulated")
    assert sum(line.startswith("step ") for line in outcome.out.splitlines()) == num_steps


@pytest.mark.parametrize(
    ("words", "steps"),
    [("3:5", [3, 4, 5]), ("3", [3]), (":2", [0, 1, 2]), ("11:", [11, 12])],
)
def test_show_lists_some_steps(words: str, steps: list[int], trace: Path, run: RunCommand) -> None:
    lines = run("trace", "show", trace, "--steps", words).out.splitlines()
    assert [int(line.split()[1]) for line in lines if line.startswith("step ")] == steps


def test_show_lists_what_concerns_one_request(trace: Path, run: RunCommand) -> None:
    outcome = run("trace", "show", trace, "--request", "c")
    assert "hit 32" in outcome.out
    assert "c gets" in outcome.out
    assert "a gets" not in outcome.out
    assert "b" not in {word.rstrip(":,") for word in outcome.out.split()}


def test_metrics_within_limits(trace: Path, workload: Path, run: RunCommand) -> None:
    assert json.loads(run("trace", "metrics", trace, "--json").out)["slo"] is None
    limits = ("--slo-ttft", 10, "--slo-tpot", 10, "--slo-itl", 10, "--slo-e2e", 10)
    told = json.loads(run("trace", "metrics", trace, *limits, "--json", "--requests").out)
    assert told["slo"]["attainment"] == told["slo"]["fluidity"]["fluid_share"] == 1.0
    assert told["slo"]["goodput_tokens_per_s"] == told["output_tokens_per_s"]
    assert [row["fluidity_index"] for row in told["requests"]] == [1.0, 1.0, 1.0]
    simulated = json.loads(run("simulate", workload, *limits, "--kvcache-block-size", 16, "--json").out)
    assert simulated["metrics"]["slo"] == told["slo"]
    outcome = run("trace", "metrics", trace, "--slo-ttft", "nan")
    message = "error: slo_ttft=nan is not allowed: a number of seconds, 1e-09 or more\n"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message)


def test_check_praises_a_trace_that_keeps_the_laws(trace: Path, run: RunCommand) -> None:
    outcome = run("trace", "check", trace)
    assert outcome.code == 0
    assert "every law is kept" in outcome.out
    assert json.loads(run("trace", "check", trace, "--json").out) == {
        "complete": True,
        "problem": None,
        "violations": [],
    }


def test_check_reports_a_broken_law_with_its_line(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    path, lines = tmp_path / "broken.jsonl", trace.read_text().splitlines(keepends=True)
    number = next(index for index, line in enumerate(lines) if '"blocks_allocated"' in line)
    lines[number] = lines[number].replace('"blocks":[0,', '"blocks":[1,')
    path.write_text("".join(lines))
    outcome = run("trace", "check", path)
    assert outcome.code == 1
    assert f"{path}:{number + 1}: " in outcome.out
    told = json.loads(run("trace", "check", path, "--json").out)
    assert told["violations"][0]["event"] == number


def test_check_tells_each_law_once_with_its_first_violations(tmp_path: Path, run: RunCommand) -> None:
    load, path = tmp_path / "load.jsonl", tmp_path / "early.jsonl"
    load.write_text("".join(f'{{"id": {number}, "prompt_len": 4, "max_tokens": 1}}\n' for number in range(7)))
    assert run("simulate", load, "--trace", path).code == 0
    path.write_text(path.read_text().replace('"arrival":0.0', '"arrival":-1.0'))
    shown, every, as_json = (run("trace", "check", path, *words) for words in ((), ("--all",), ("--json",)))
    assert {outcome.code for outcome in (shown, every, as_json)} == {1}
    heading, *places = every.out.splitlines()
    assert heading == "arrival, broken 7 ×: A request arrives after the start, and before it is handed over."
    assert places[0] == f"{path}:2: step -1, event 1: request 0 came at -1.0 s, before the start"
    assert len(places) == len(json.loads(as_json.out)["violations"]) == 7
    assert shown.out.splitlines() == [heading, *places[:5], "… 2 more of arrival: --all prints them"]


def test_diff_finds_what_differs(workload: Path, trace: Path, tmp_path: Path, run: RunCommand) -> None:
    assert run("trace", "diff", trace, trace).out == "decisions identical\n"
    other = tmp_path / "other.jsonl"
    assert run("simulate", workload, "--kvcache-block-size", 8, "--trace", other).code == 0
    outcome = run("trace", "diff", trace, other)
    assert outcome.code == 1
    assert "block_size is 16 in A, 8 in B" in outcome.out
    assert json.loads(run("trace", "diff", trace, trace, "--json").out) == {"identical": True}
    told = json.loads(run("trace", "diff", trace, other, "--json").out)
    assert (told["identical"], told["step"]) == (False, 0)


def test_metrics_as_tables_and_as_json(trace: Path, run: RunCommand) -> None:
    assert "time to first token" in run("trace", "metrics", trace).out
    told = json.loads(run("trace", "metrics", trace, "--json", "--requests").out)
    assert (told["num_completed"], told["hit_tokens"]) == (3, 32)
    assert {row["request"] for row in told["requests"]} == {"a", "b", "c"}
    assert "requests" not in json.loads(run("trace", "metrics", trace, "--json").out)


def test_perfetto_writes_where_it_is_told_to_or_beside_the_trace(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(trace.read_bytes()))
    assert run("trace", "perfetto", path).out == f"{tmp_path / 'run.perfetto.json'}\n"
    assert run("trace", "perfetto", path, "-o", tmp_path / "other.json").code == 0
    written = [json.loads((tmp_path / name).read_text()) for name in ("run.perfetto.json", "other.json")]
    assert written[0]["traceEvents"] == written[1]["traceEvents"] != []


# ---- views ---------------------------------------------------------------------------------------------------


def test_plot_draws_what_it_is_told_to(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    picture, drawing = tmp_path / "run.png", tmp_path / "run.svg"
    outcome = run("trace", "plot", trace, "--kind", "timeline,kv", "-o", picture)
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{picture}\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    for words, title in (((), ">step<"), (("--by-time",), ">time, ms<")):
        assert run("trace", "plot", trace, "--kind", "kv", "--steps", "2:5", *words, "-o", drawing).code == 0
        text = re.sub(r"<!-- (.*?) -->", r">\1<", drawing.read_text(encoding="utf-8"))
        assert title in text


def test_views_are_written_beside_the_trace_if_no_name_is_given(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(trace.read_bytes()))
    assert run("trace", "plot", path).out == f"{tmp_path / 'run.png'}\n"
    assert run("trace", "html", path).out == f"{tmp_path / 'run.html'}\n"
    assert (tmp_path / "run.png").exists()
    assert (tmp_path / "run.html").exists()


def test_html_replays_one_run_or_two(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    assert run("trace", "html", trace, "-o", one) == Outcome(0, f"{one}\n", "")
    assert run("trace", "html", trace, "-o", two, "--compare", trace).code == 0
    assert "<title>trace.jsonl: replay</title>" in one.read_text(encoding="utf-8")
    assert "<title>trace.jsonl and trace.jsonl: replay</title>" in two.read_text(encoding="utf-8")


def test_help_names_every_kind_of_figure() -> None:
    (option,) = (option for option in ALL_COMMANDS["trace", "plot"].params if option.name == "kind")
    assert option.help.endswith(f": {', '.join(KINDS)}.")


@pytest.mark.parametrize("command", ["plot", "html"])
def test_a_contradictory_trace_is_drawn_up_to_there(command: str, trace: Path, tmp_path: Path, run: RunCommand) -> None:
    path, lines = tmp_path / "broken.jsonl", trace.read_text().splitlines(keepends=True)
    number = [index for index, line in enumerate(lines) if '"tokens_appended"' in line][3]
    path.write_text("".join([*lines[:number], lines[number - 1], *lines[number:]]))
    outcome = run("trace", command, path)
    assert outcome.code == 0
    assert Path(outcome.out.strip()).exists()
    assert outcome.err.startswith(f"note: {path}:{number + 1}: ")
    assert outcome.err.count("\n") == 1


def test_plot_of_a_trace_that_was_cut_is_drawn_with_a_note(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    path, data = tmp_path / "cut.jsonl", trace.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    outcome = run("trace", "plot", path)
    assert outcome.code == 0
    assert outcome.err.startswith(f"note: {path}:")
    assert outcome.err.count("\n") == 1


# ---- traces that were cut ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_a_trace_cut_at_any_byte_is_shown_as_far_as_it_goes(
    command: str, trace: Path, tmp_path: Path, run: RunCommand
) -> None:
    data, path = trace.read_bytes(), tmp_path / "cut.jsonl"
    header_end = data.index(b"\n")
    for end in (header_end, header_end + 1, *range(header_end + 2, len(data), len(data) // 16)):
        path.write_bytes(data[:end])
        outcome = run("trace", command, path)
        if command == "check":
            assert (outcome.code, outcome.err) == (1, "")
            assert f"{path}:" in outcome.out
        else:
            assert outcome.code == 0
            assert outcome.err.startswith(f"note: {path}:")
            assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_trace_cut_within_its_header_is_an_error(command: str, trace: Path, tmp_path: Path, run: RunCommand) -> None:
    data, path = trace.read_bytes(), tmp_path / "cut.jsonl"
    for end in range(0, data.index(b"\n"), 31):
        path.write_bytes(data[:end])
        outcome = run("trace", command, path)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert outcome.err.startswith("error: ")
