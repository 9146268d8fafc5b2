"""The command as a process: streams that are closed, full or of another encoding, and signals at any time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "nanovllm.cli"]


def shell(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``sh -c`` with the command as ``$@``."""
    return subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.parametrize("script", ['"$@" >&-', '"$@" 2>&-', '"$@" <&-', '"$@" <&- >&- 2>&-'])
def test_closed_streams_are_empty_ones(script: str) -> None:
    result = shell(script, "models")
    assert (result.returncode, result.stderr) == (0, "")
    result = shell(script, "generate", "--model", "nowhere")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("words", [("models",), ("models", "--json"), ("--version",)], ids=" ".join)
def test_a_full_disk_is_one_line(words: tuple[str, ...]) -> None:
    result = shell('"$@" >/dev/full', *words)
    assert (result.returncode, result.stderr) == (2, "error: no space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("words", ["simulate", "trace show", "models"])
def test_characters_that_the_terminal_lacks_end_nothing(encoding: str, words: str, workload: Path, trace: Path) -> None:
    files = {"simulate": [workload], "trace show": [trace]}.get(words, [])
    result = shell('"$@"', *words.split(), *files, PYTHONIOENCODING=encoding)
    assert (result.returncode, result.stderr) == (0, "")


def test_whoever_stops_reading_gets_no_complaint(trace: Path) -> None:
    result = shell('"$@" | head -1', "trace", "show", trace)
    assert (result.stdout.count("\n"), result.stderr) == (1, "")


INTERRUPTED = """
import sys
class Interruption:
    def find_spec(self, name, *rest):
        if name == "{module}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interruption())
sys.argv = ["nanovllm", "models"]
from nanovllm.cli.__main__ import run
sys.exit(run())
"""


@pytest.mark.parametrize("module", ["typer", "nanovllm.cli.main", "nanovllm.model_spec", "rich.table"])
def test_an_interrupt_shows_no_traceback_while_the_command_is_loaded(module: str) -> None:
    script = INTERRUPTED.format(module=module)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "")
