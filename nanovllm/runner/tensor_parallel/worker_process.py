"""A rank in a process of its own, as rank 0 sees it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from queue import SimpleQueue

from nanovllm.runner.tensor_parallel.messages import Answer, Failed

WORKER_MODULE = "nanovllm.runner.tensor_parallel.worker"
_ENDING_S = 5.0


class WorkerProcess:
    """Started at once. A fresh interpreter, so that it takes no part of the engine's program along; in a session of its
    own, so that a Ctrl-C reaches the engine alone. It ends when its connection does."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.connection, theirs = Pipe()
        self.answers: SimpleQueue[Answer | None] = SimpleQueue()
        """What it has answered; None: nothing more will come."""
        program = f"import sys; sys.path[:] = {sys.path!r}; from {WORKER_MODULE} import main; main(int(sys.argv[1]))"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            theirs.close()

    @property
    def process_id(self) -> int:
        """The operating system's number of it."""
        return self._process.pid

    def describe_end(self, last_words: Failed | None) -> str:
        """What has become of it, in words."""
        name = f"rank {self.rank} (process {self.process_id})"
        if last_words is not None:
            return f"{name} failed: {last_words.problem}"
        code = self._process.returncode
        if code is not None and code < 0:
            return f"{name} was killed by {signal.Signals(-code).name}"
        return f"{name} has ended" + ("" if code is None else f" with code {code}")

    def was_killed(self, within_s: float) -> bool:
        """Whether a signal has ended it, or does so soon."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(within_s) < 0
        return False

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it by ending its connection. Again: nothing."""
        self.connection.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self.kill()
