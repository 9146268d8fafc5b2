"""``--live`` and ``trace watch`` where there is no terminal: plain lines, beside the same results."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from nanovllm.cli.live import listeners, make_view, showing
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.text import to_text
from tests.cli.conftest import RunCommand
from viz.live import LiveView


def test_a_simulation_in_lines(run: RunCommand, workload: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    told = run("simulate", workload, "--kvcache-block-size", 16, "--live", "--trace", trace)
    assert told.code == 0
    lines = list(to_text(read_trace(trace).events))
    assert told.out.splitlines()[: len(lines)] == lines
    assert "of serving simulated in" in told.out
    assert "\x1b" not in told.out


def test_lines_go_to_standard_error_where_results_are_for_programs(run: RunCommand, workload: Path) -> None:
    usual = run("simulate", workload, "--json")
    told = run("simulate", workload, "--json", "--live")
    assert told.out.startswith('{"complete": true')
    assert len(told.out.splitlines()) == len(usual.out.splitlines()) == 1
    assert "\nstep 1 " in told.err


def test_a_generation_in_lines(run: RunCommand, model_path: Path) -> None:
    options = ["--max-tokens", 5, "--ignore-eos", "--device", "cpu", "--kvcache-block-size", 16, "--model", model_path]
    usual = run("generate", "fox", "dog", *options)
    told = run("generate", "fox", "dog", *options, "--live")
    assert told.code == usual.code == 0
    assert "step 0 prefill" in told.out
    assert told.out.endswith(usual.out)


def test_streams_and_views_exclude_each_other(run: RunCommand) -> None:
    told = run("generate", "fox", "--stream", "--live")
    assert (told.code, told.out) == (2, "")
    assert told.err == "error: --stream and --live both want the screen: choose one of them\n"


def test_watching_a_trace_in_a_pipe_lists_it(run: RunCommand, trace: Path) -> None:
    assert run("trace", "watch", trace) == run("trace", "show", trace)


def test_watching_a_trace_that_was_cut(run: RunCommand, trace: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(trace.read_bytes()[:-100])
    told = run("trace", "watch", cut)
    assert told.code == 0
    assert told.err.startswith(f"note: {cut}:")
    assert run("trace", "watch", tmp_path / "none.jsonl").code == 2


def test_what_became_of_a_view_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(io.StringIO())
    with showing(view):
        view.problem = "the live view has failed"
    assert capsys.readouterr().err == "note: the live view has failed\n"
    with showing(None):
        pass


def test_who_listens(tmp_path: Path) -> None:
    with ExitStack() as resources:
        assert listeners(None, None, resources) == []
        view = make_view(True)
        assert view is not None
        assert listeners(None, view, resources) == [view.emit]
        assert len(listeners(tmp_path / "trace.jsonl", view, resources)) == 2
    assert make_view(False) is None
    assert make_view(True, as_json=True)._stream is sys.stderr  # type: ignore[union-attr]
