"""Runs a workload in the simulator and accounts for its prefix cache, on one pool or on several sizes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

import msgspec

from nanovllm.config import Config
from nanovllm.errors import ConfigError, WorkerError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.state.pool import MAX_NUM_BLOCKS
from sim.cost_models import CostModel
from sim.engine_setup import prompts_of
from sim.hardware import GPU
from sim.interrupts import end_on_interrupt, end_with, starting_processes
from sim.prefix_reuse.account import ReuseAccount
from sim.prefix_reuse.observer import ReuseObserver
from sim.processors import num_processors
from sim.readers.mooncake import TracedBlocks
from sim.simulation import simulate
from sim.workload import Prompts, WorkloadRequest

_MANY_POSITIONS = 2**40


@dataclass(frozen=True, kw_only=True)
class ReuseRun:
    """What to run. The model's positions limit nothing here: what is asked is what can be reused, not what a model can
    read. Raises ``ConfigError``.

    ``read`` makes the workload, in order of arrival, anew for each run. ``read_blocks`` tells what its prompts' blocks
    hold, where a trace does: as for a block of ``config.kvcache_block_size`` tokens; without it, the tokens tell.
    Both must be functions that another process can be given.
    """

    config: Config
    read: Callable[[], Iterable[WorkloadRequest]]
    read_blocks: Callable[[], Iterable[TracedBlocks]] | None = None
    gpu: str | GPU | None = None
    model: ModelSpec = field(default_factory=lambda: ModelSpec.preset("llama-3.1-8b"))
    cost_model: CostModel | None = None

    def __post_init__(self) -> None:
        if not self.config.enable_prefix_caching:
            raise ConfigError("enable_prefix_caching", False, "nothing is reused without it")


def account_for_reuse(run: ReuseRun, num_blocks: int | None = None) -> ReuseAccount:
    """Simulate a workload and say what became of each prompt block that repeats an earlier one. ``num_blocks``: of the
    pool; None for as many as nothing is ever evicted from. Raises ``UserError`` as ``simulate`` does."""
    if num_blocks is None:
        num_blocks = num_blocks_for_all(run)
    config = replace(run.config, num_kvcache_blocks=num_blocks)
    spec = replace(run.model, max_position_embeddings=max(_MANY_POSITIONS, run.model.max_position_embeddings))
    observer = ReuseObserver(config.kvcache_block_size)
    workload = _told(run, prompts_of(config, spec), observer)
    result = simulate(
        config, workload, gpu=run.gpu, model=spec, cost_model=run.cost_model, record=False, emit=observer.apply
    )
    observer.finish()
    return ReuseAccount(
        num_blocks=num_blocks,
        num_requests=observer.num_requests,
        num_prompt_blocks=observer.num_prompt_blocks,
        num_repeats=observer.num_repeats,
        num_hits=observer.num_hits,
        misses=dict(observer.misses),
        gains=dict(observer.gains),
        time_s=result.time_s,
        loop_time_s=result.loop_time_s,
    )


def reuse_by_pool(run: ReuseRun, sizes: Sequence[int], max_processes: int | None = None) -> Iterator[ReuseAccount]:
    """The accounts of pools of these sizes, in this order, as they come; several are simulated at a time, in
    ``max_processes`` processes (None: one a processor). Raises ``WorkerError`` if one of them is killed."""
    num_processes = min(len(sizes), max_processes or num_processors())
    if num_processes < 2:
        yield from (account_for_reuse(run, size) for size in sizes)
        return
    with ProcessPoolExecutor(num_processes, get_context("spawn"), _begin, (os.getpid(),)) as executor:
        with starting_processes():
            accounts = executor.map(account_for_reuse, [run] * len(sizes), sizes)
        try:
            yield from accounts
        except BrokenProcessPool:
            raise WorkerError("a process that simulated a pool was killed, for want of memory perhaps") from None


def _begin(parent: int) -> None:
    end_with(parent)
    end_on_interrupt()


def num_blocks_for_all(run: ReuseRun) -> int:
    """Blocks that hold all requests of a workload side by side: a free list that is never used up evicts nothing."""
    if run.read_blocks is not None:  # quicker: the tokens need not be drawn
        lengths = (blocks.num_tokens for blocks in run.read_blocks())
    else:
        lengths = ((request.num_prompt_tokens or 0) + request.max_tokens for request in run.read())
    num_blocks = sum(-(-num_tokens // run.config.kvcache_block_size) for num_tokens in lengths)
    return max(1, min(num_blocks, MAX_NUM_BLOCKS))


def _told(run: ReuseRun, prompts: Prompts, observer: ReuseObserver) -> Iterator[WorkloadRequest]:
    """The workload, each request told to the observer before the engine has it."""
    traced = None if run.read_blocks is None else iter(run.read_blocks())
    for index, request in enumerate(run.read()):
        token_ids = prompts.token_ids(request, index)
        if request.prompt is None:
            known = {"prompt": list(token_ids), "prompt_len": None, "prefix": None, "prefix_len": None}
            request = msgspec.structs.replace(request, **known)
        observer.expect(request.id, token_ids, None if traced is None else next(traced).hash_ids)
        yield request
