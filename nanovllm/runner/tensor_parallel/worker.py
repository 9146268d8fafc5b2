"""The program of a rank other than 0: it does what rank 0 says, until rank 0 is gone."""

from __future__ import annotations

import os
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import torch

from nanovllm.errors import NanoVllmError, StepError
from nanovllm.runner.rank import Rank
from nanovllm.runner.tensor_parallel.messages import (
    Allocate,
    Answer,
    Count,
    Counted,
    Done,
    Failed,
    Go,
    Order,
    Prepared,
    Start,
    Step,
    decode_order,
    encode,
)
from nanovllm.runner.tensor_parallel.mirrors import Mirrors
from nanovllm.runner.tensor_parallel.process_group import ProcessGroup, join


def main(descriptor: int) -> None:
    """Serve rank 0 at the other end of the connection."""
    worker = Worker(Connection(descriptor))
    try:
        worker.serve()
    except BaseException as error:
        worker.answer(Failed(type(error).__name__, _describe(error)))
    os._exit(1)  # without waiting for anything: other ranks may be stuck in what this one has left


class Worker:
    """A rank and its connection to rank 0."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._orders: SimpleQueue[Order] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Take orders. In a thread of its own: rank 0's end shall be noticed in the middle of a step, too."""
        try:
            while True:
                self._orders.put(decode_order(self._connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(0)

    def answer(self, answer: Answer) -> None:
        """Tell rank 0. If it is gone, so are we."""
        try:
            self._connection.send_bytes(encode(answer))
        except OSError:
            os._exit(0)

    def serve(self) -> None:
        """Do what comes, forever."""
        rank, mirrors = self._start(), Mirrors()
        while True:
            match self._orders.get():
                case Count():
                    self.answer(Counted(rank.count_kv_blocks()))
                case Allocate(num_blocks=num_blocks):
                    rank.allocate(num_blocks)
                    self.answer(Done())
                case Step() as step:
                    sequences = mirrors.follow(step)
                    if not step.is_to_be_agreed or self._agree(rank, sequences):
                        rank.compute(sequences)

    def _start(self) -> Rank:
        start = self._orders.get()
        assert isinstance(start, Start), "rank 0 begins with what is to be loaded"
        config, device, size = start.config, torch.device(start.device), start.config.tensor_parallel_size
        if config.num_threads != -1:
            torch.set_num_threads(config.num_threads)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self.answer(Done())
        group = ProcessGroup(join(start.port, size), start.rank, size, device)
        path = None if start.model_path is None else Path(start.model_path)
        rank = Rank(config, start.spec, path, device, group)
        self.answer(Done())
        return rank

    def _agree(self, rank: Rank, sequences: list) -> bool:
        """Whether all ranks have memory for a step of these."""
        problem = None
        try:
            rank.check_memory(sequences)
        except StepError as error:
            problem = str(error)
        self.answer(Prepared(problem))
        go = self._orders.get()
        assert isinstance(go, Go), "rank 0 says whether to compute what was prepared"
        return go.is_computed


def _describe(error: BaseException) -> str:
    """The error in a line, and where in the program if it is none that was foreseen."""
    if isinstance(error, NanoVllmError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message} ({Path(frame.filename).name}:{frame.lineno})"
