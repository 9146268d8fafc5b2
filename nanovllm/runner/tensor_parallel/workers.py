"""All ranks but rank 0, as rank 0 sees them: what it tells them, and what happens when one of them fails.

No rank can go on without the others: a sum over all ranks waits for each. So the first failure ends the group. A
thread of rank 0's process waits for answers, for the end of a process too; it kills the other ranks and frees rank 0
from whatever sum it waits in, and every call from then on raises the same ``WorkerError``.

Memory that runs out in a step would be such a failure. Therefore ranks agree before a step with prompts, the large
ones, that each has memory for it; if not, all leave it out, its requests fail and the engine goes on. Steps that only
decode are small, mostly recorded as CUDA graphs with their memory, and not worth the time of asking.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from time import sleep

import torch

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import MemoryPoolError, ModelError, NanoVllmError, StepError, UserError, WorkerError
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.pending import CardStep, CpuStep
from nanovllm.runner.tensor_parallel.messages import (
    Allocate,
    Count,
    Counted,
    Failed,
    Go,
    Order,
    Prepared,
    Start,
    decode_answer,
    encode,
)
from nanovllm.runner.tensor_parallel.mirrors import Originals
from nanovllm.runner.tensor_parallel.process_group import Meeting, ProcessGroup
from nanovllm.runner.tensor_parallel.worker_process import WorkerProcess

_VERDICT_S = 2.0
"""A sum over all ranks fails at once when a process ends; the thread that waits for it may be a little later."""
_GRACE_S = 0.2
"""Where one rank ends, others fail: so long the one that was first has to be found out."""
_POLLING_S = 20e-6
_USERS_MISTAKES = {kind.__name__: kind for kind in (MemoryPoolError, ModelError)}


class Workers:
    """Ranks 1 and up, in processes of their own."""

    def __init__(self, config: Config, spec: ModelSpec, model_path: Path | None, devices: list[torch.device]) -> None:
        """Start a process for each. Arguments as for ``Rank``; ``devices``: those of all ranks."""
        self._devices = devices
        self._originals = Originals()
        self._failure: NanoVllmError | None = None
        self._has_failed = threading.Event()
        self._is_closed = False
        self._group: ProcessGroup | None = None
        self._processes: list[WorkerProcess] = []
        self._ear, self._mouth = Pipe(duplex=False)  # closing the mouth ends the thread
        self._meeting = Meeting(len(devices))
        try:
            self._processes += (WorkerProcess(rank) for rank in range(1, len(devices)))
        except BaseException:
            self.close()
            raise
        self._watcher = threading.Thread(target=self._watch, name="tensor-parallel watcher", daemon=True)
        self._watcher.start()
        path = None if model_path is None else str(model_path)
        with self.together():
            for process in self._processes:
                device = str(devices[process.rank])
                start = Start(process.rank, self._meeting.port, device, config, spec, path)
                process.connection.send_bytes(encode(start))

    @property
    def process_ids(self) -> list[int]:
        """The operating system's numbers of the ranks' processes."""
        return [process.process_id for process in self._processes]

    # ---- set-up ----------------------------------------------------------------------------------------------

    def connect(self) -> ProcessGroup:
        """The group, in which the caller is rank 0. The others then load their weights."""
        self._receive()
        self._group = ProcessGroup(self._meeting.store, 0, len(self._devices), self._devices[0])
        return self._group

    def wait_until_loaded(self) -> None:
        """Wait until each rank has loaded its weights."""
        self._receive()

    def count(self) -> None:
        """Let each rank count KV blocks, while rank 0 does the same."""
        self._send(Count())

    def least_count(self, own: int) -> int:
        """The number of KV blocks that all ranks have memory for; ``own``: rank 0's."""
        counted = [answer.num_blocks for answer in self._receive() if isinstance(answer, Counted)]
        return min(own, *counted)

    def allocate(self, num_blocks: int) -> None:
        """Let each rank make its KV pool and record graphs, while rank 0 does the same."""
        self._send(Allocate(num_blocks))

    def wait_until_allocated(self) -> None:
        """Wait until each rank has."""
        self._receive()

    # ---- the step --------------------------------------------------------------------------------------------

    def begin(self, batch: ScheduledBatch, check_memory: Callable[[list[Sequence]], None]) -> None:
        """Let each rank compute ``batch``; rank 0 is to do the same now. Raises ``StepError``, and no rank computes, if
        one has no memory for it; ``check_memory`` says that of rank 0."""
        problem = None
        with self.together():
            step = self._originals.tell(batch)
            self._send(step)
            if step.is_to_be_agreed:
                problem = self._agree(batch, check_memory)
        if problem is not None:
            raise StepError(problem)

    def _agree(self, batch: ScheduledBatch, check_memory: Callable[[list[Sequence]], None]) -> str | None:
        problems: list[str | None] = []
        try:
            check_memory(batch.sequences)
        except StepError as error:
            problems.append(str(error))
        problems += [answer.problem for answer in self._receive() if isinstance(answer, Prepared)]
        problem = next((problem for problem in problems if problem is not None), None)
        self._send(Go(problem is None))
        return problem

    def watch(self, step: CardStep | CpuStep) -> WatchedStep:
        """The step, to be waited for as long as all ranks live."""
        return WatchedStep(step, self.check)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within the block, rank 0 does its part of what all ranks do. If it is left by an exception, they cannot go
        on; where another rank was the cause, that is what is raised."""
        self.check()
        try:
            yield
        except BaseException as error:
            if isinstance(error, RuntimeError | OSError):
                self._has_failed.wait(_VERDICT_S)
            was_first = self._failure is None
            self._fail(WorkerError(f"rank 0 failed in the middle of a step: {_in_a_line(error)}"))
            if was_first and not isinstance(error, StepError):
                raise
            self.check()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended the group, if one has."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from None

    # ---- messages --------------------------------------------------------------------------------------------

    def _send(self, order: Order) -> None:
        message = encode(order)
        for process in self._processes:
            process.connection.send_bytes(message)

    def _receive(self) -> list[object]:
        """The answer of each rank."""
        answers = []
        for process in self._processes:
            answer = process.answers.get()
            if answer is None:
                self.check()
            answers.append(answer)
        return answers

    # ---- the end ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        processes = {process.connection: process for process in self._processes}
        while True:
            for connection in wait([self._ear, *processes]):
                process = processes.get(connection)  # type: ignore[call-overload]
                if process is None:
                    return
                try:
                    answer = decode_answer(process.connection.recv_bytes())
                except (EOFError, OSError):
                    self._fail(self._find_cause(process, None))
                    return
                if isinstance(answer, Failed):
                    self._fail(self._find_cause(process, answer))
                    return
                process.answers.put(answer)

    def _find_cause(self, process: WorkerProcess, last_words: Failed | None) -> NanoVllmError:
        for other in self._processes:
            if other.was_killed(_GRACE_S):
                return WorkerError(other.describe_end(None))
        if last_words is not None and last_words.kind in _USERS_MISTAKES:
            return _USERS_MISTAKES[last_words.kind](f"rank {process.rank}: {last_words.problem}")
        return WorkerError(process.describe_end(last_words))

    def _fail(self, failure: NanoVllmError) -> None:
        """The end of the group, for the first of these reasons."""
        if self._failure is None and not self._is_closed:
            self._failure = failure
        self._has_failed.set()
        for process in self._processes:
            process.kill()
            process.answers.put(None)
        if self._group is not None:
            self._group.abort()

    def close(self) -> None:
        """End all processes. Calling it again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._mouth.close()
        if self._processes:
            self._watcher.join()
        self._ear.close()
        if self._group is not None:
            self._group.abort()
        for process in self._processes:
            process.end()


class WatchedStep:
    """The ``PendingStep`` of rank 0: a card that waits for another rank would wait for one that has ended, too."""

    def __init__(self, step: CardStep | CpuStep, check: Callable[[], None]) -> None:
        self._step = step
        self._check = check

    def result(self) -> list[int]:
        """See ``PendingStep``. Raises ``WorkerError`` if a rank has failed."""
        while not self._step.is_over():
            self._check()
            sleep(_POLLING_S)
        self._check()  # what a sum yields that was broken off is no token
        return self._step.result()


def _in_a_line(error: BaseException) -> str:
    if isinstance(error, UserError | StepError):
        return str(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0]
