"""The view in a real terminal: tmux draws it, presses keys, and shows what the terminal is like afterwards."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nanovllm.trace.jsonl import write_trace
from tests.viz.web.traces import tight_run

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

DEADLINE_S = 60
NANOVLLM = [sys.executable, "-m", "nanovllm.cli"]


class Tmux:
    """A server of its own with one terminal, in which a command runs."""

    def __init__(self, size: tuple[int, int], command: list[str]) -> None:
        self._socket = f"nanovllm-test-{uuid.uuid4().hex}"
        self._environment = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TMUX"):
            self._environment.pop(name, None)
        script = f"trap : INT; {shlex.join(command)}; echo code $?; stty -a; cat"
        width, height = map(str, size)
        start = "-f", os.devnull, "new-session", "-d", "-x", width, "-y", height, "sh", "-c", script
        try:
            self._run(*start)
        except subprocess.CalledProcessError:  # on a busy machine its server may give up before its client is there
            self._run(*start)

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._socket, *arguments]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def wait(self, is_there: Callable[[str], bool]) -> str:
        """The screen as soon as it is as it shall be."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_there(screen := self.screen()):
            assert time.monotonic() < deadline_s, f"this never changes:\n{screen}"
        return screen

    def wait_for(self, *texts: str) -> str:
        return self.wait(lambda screen: all(text in screen for text in texts))

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Tmux]]:
    opened: list[Tmux] = []

    def open_one(size: tuple[int, int], *arguments: object) -> Tmux:
        opened.append(Tmux(size, [*NANOVLLM, *map(str, arguments)]))
        return opened[-1]

    yield open_one
    for tmux in opened:
        tmux.close()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tmux") / "run.jsonl"
    write_trace(tight_run(), path)
    return path


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=str)
def test_a_trace_forwards_and_backwards(size: tuple[int, int], open_terminal: Callable[..., Tmux], trace: Path) -> None:
    tmux = open_terminal(size, "trace", "watch", trace)
    tmux.wait_for("running", "KV pool", "what happened", "q quit")
    tmux.press("Home")
    first = tmux.wait_for("step 0 of", "paused", " 0 tokens/s")  # rows are drawn from the top: these are all
    assert len(first.splitlines()) == size[1]
    assert max(map(len, first.splitlines())) <= size[0]
    tmux.press("Right")
    tmux.wait_for("step 1 of")
    tmux.press("Left")
    tmux.wait(lambda screen: screen == first)
    tmux.press("p")
    tmux.wait_for("is preempted for")
    tmux.press("q")
    afterwards = tmux.wait_for("code 0", " icanon", " echo ")
    assert "KV pool" not in afterwards, "the screen is as before"


def test_a_simulation_that_is_looked_at_when_it_is_over(open_terminal: Callable[..., Tmux], tmp_path: Path) -> None:
    load = tmp_path / "load.jsonl"
    load.write_text("".join(f'{{"id": {i}, "prompt_len": 40, "max_tokens": 20}}\n' for i in range(6)))
    options = ["--kvcache-block-size", 16, "--num-kvcache-blocks", 16]
    tmux = open_terminal((80, 24), "simulate", load, "--live", *options)
    tmux.wait_for("KV pool: 16 blocks of 16")
    tmux.press("Home")
    tmux.wait_for("step 0 of")
    tmux.press("q")
    tmux.wait_for("of serving simulated in", "code 0", " icanon")


def test_a_view_and_its_run_end_with_ctrl_c(open_terminal: Callable[..., Tmux], tmp_path: Path) -> None:
    load = tmp_path / "load.jsonl"
    load.write_text(
        "".join(f'{{"id": {i}, "prompt_len": 20, "max_tokens": 3000, "arrival": {i}}}\n' for i in range(9999))
    )
    tmux = open_terminal((80, 24), "simulate", load, "--live")
    tmux.wait_for("what happened")
    tmux.press("C-c")
    tmux.wait_for("code 130", " icanon", " echo ")
