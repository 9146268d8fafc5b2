"""The command as a whole: its version, its speed, its help, and what becomes of errors and closed pipes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nanovllm import __version__
from nanovllm.cli.main import app
from tests.cli.conftest import RunCommand

SHOW_HEAVY_IMPORTS = """
import sys
from nanovllm.cli.main import main
main(["--help"])
heavy = {"torch", "transformers", "numpy", "matplotlib", "rich", "sim", "viz"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands with their words."""
    for name, command in (group or get_command(app)).commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands())


def test_version(run: RunCommand) -> None:
    outcome = run("--version")
    assert (outcome.code, outcome.out) == (0, f"nanovllm {__version__}\n")


def test_without_a_command_the_help_is_shown(run: RunCommand) -> None:
    assert run() == run("--help")


def test_help_imports_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-c", SHOW_HEAVY_IMPORTS], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example_of_it(words: tuple[str, ...], run: RunCommand) -> None:
    outcome = run(*words, "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    if not hasattr(COMMANDS[words], "commands"):
        assert f"nanovllm {' '.join(words)}" in outcome.out.partition("Example")[2]


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_names_of_options_are_never_cut_short(words: tuple[str, ...], run: RunCommand) -> None:
    shown = run(*words, "--help").out
    for parameter in COMMANDS[words].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert not option.startswith("--") or option in shown


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_an_option_that_does_not_exist_is_one_line(words: tuple[str, ...], run: RunCommand) -> None:
    outcome = run(*words, "--no-such-option")
    assert outcome.code == 2
    assert outcome.err.startswith("error: no such option: --no-such-option")
    assert outcome.err.endswith(f"; see nanovllm {' '.join(words)} --help\n")
    assert outcome.err.count("\n") == 1


def test_a_bug_shows_its_traceback(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a broken rule of our own")

    monkeypatch.setattr("nanovllm.trace.jsonl.read_trace", fail)
    with pytest.raises(AssertionError, match="broken rule"):
        run("trace", "show", "x")


def test_a_missing_extra_is_named(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "nanovllm" and "runner" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = run("generate", "hello")
    assert outcome.code == 2
    assert re.fullmatch(r"error: this needs \w+: pip install 'nanovllm-lab\[engine\]'\n", outcome.err)


def test_a_missing_extra_of_a_view_is_named(trace: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = run("trace", "plot", trace)
    assert outcome.code == 2
    assert re.fullmatch(r"error: .*matplotlib.*: pip install 'nanovllm-lab\[viz\]'\n", outcome.err)


def test_a_reader_that_goes_away_is_no_error(trace: Path) -> None:
    command = [sys.executable, "-m", "nanovllm.cli", "trace", "show", str(trace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
