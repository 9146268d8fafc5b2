"""Ids, file names and answers come from anywhere: none of them reaches the terminal as anything but text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanovllm.cli.console import print_error, print_line, print_text
from nanovllm.cli.timeline import print_timeline
from nanovllm.errors import printable
from nanovllm.trace.jsonl import read_trace
from tests.cli.conftest import RunCommand

EVIL = "a\x1b[31mb\nc\r\x07\x7f\x9b2J\u202ed\u2028e"
"""Colours, line breaks, a bell, a cleared screen, text that runs backwards."""
SHOWN = r"a\x1b[31mb\nc\r\x07\x7f\x9b2J\u202ed\u2028e"


@pytest.mark.parametrize("text", ["plain", "größer", "漢字", "👩‍👩‍👧", "a b", "", "→ • µ"])
def test_what_is_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_what_a_terminal_would_obey_is_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(EVIL) == SHOWN
    print_line(EVIL)
    assert capsys.readouterr().out == SHOWN + "\n"
    print_text("line\n\ttab\x1b[2J")
    assert capsys.readouterr().out == "line\n\ttab\\x1b[2J\n"
    print_error(f"  {EVIL}\nand more")
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def evil_trace(tmp_path: Path, run: RunCommand) -> Path:
    """A run with such ids; the second is preempted for the first."""
    lines = [{"id": EVIL + str(i), "prompt_len": 5 - i, "max_tokens": 9 + i, "arrival_step": 0} for i in range(2)]
    load, trace = tmp_path / "load.jsonl", tmp_path / "trace.jsonl"
    load.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("--num-kvcache-blocks", 4, "--kvcache-block-size", 4)
    assert run("simulate", load, *words, "--trace", trace).code == 0
    return trace


def assert_text(out: str, num_lines: int | None = None) -> None:
    assert printable(out, keep="\n") == out
    if num_lines is not None:
        assert out.count("\n") == num_lines


def test_ids_in_a_listing(evil_trace: Path, run: RunCommand, capsys: pytest.CaptureFixture[str]) -> None:
    plain = run("trace", "show", evil_trace).out
    assert_text(plain, plain.count("\n"))
    assert f"preempted request {SHOWN}1 for {SHOWN}0" in plain
    assert_text(run("trace", "show", evil_trace, "--request", EVIL + "1").out)
    print_timeline(read_trace(evil_trace).events)
    assert_text(capsys.readouterr().out)


def test_ids_in_what_is_found(evil_trace: Path, tmp_path: Path, run: RunCommand) -> None:
    lines = evil_trace.read_text().splitlines(keepends=True)
    cut, other = tmp_path / "cut.jsonl", tmp_path / "other.jsonl"
    cut.write_text("".join(lines[:-8]))
    preempted = next(i for i, line in enumerate(lines) if "preempted" in line)
    other.write_text("".join(lines[:preempted] + lines[preempted + 1 :]))
    for words in (("check", cut), ("check", other), ("show", cut), ("diff", evil_trace, other), ("perfetto", other)):
        outcome = run("trace", *words)
        assert_text(outcome.out)
        assert_text(outcome.err)
        assert outcome.err.count("\n") <= 1


def test_requests_that_can_never_run(evil_trace: Path, run: RunCommand) -> None:
    outcome = run("simulate", evil_trace.with_name("load.jsonl"), "--max-model-len", 4)
    assert outcome.code == 2
    assert_text(outcome.err, num_lines=2)


def test_file_names(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "[bold]\x1b[31m\n[" / "x].jsonl"
    path.parent.mkdir()
    assert_text(run("workload", "check", path).err, num_lines=1)
    path.write_text('{"id": 1, "prompt_len": 4, "max_tokens": 2}\n')
    outcome = run("workload", "check", path)
    assert outcome.code == 0
    assert_text(outcome.out)
    assert_text(run("trace", "show", path).err, num_lines=1)
