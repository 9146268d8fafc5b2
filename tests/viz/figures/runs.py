"""Runs of the real scheduler, small enough to know every number of them."""

from __future__ import annotations

from collections.abc import Sequence

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.trace.events import AnyEvent
from tests.trace.runs import Scenario, request


def prompt(name: str, length: int, shared: Sequence[int] = ()) -> list[int]:
    """``length`` tokens: the ``shared`` ones, then ones that no other name has."""
    return [*shared, *(1000 * ord(name) + index for index in range(length - len(shared)))]


def run(
    requests: list[Request], *, block_size: int = 4, num_blocks: int, budget: int = 64, slots: int = 8
) -> list[AnyEvent]:
    config = Config(
        kvcache_block_size=block_size,
        num_kvcache_blocks=num_blocks,
        max_num_batched_tokens=budget,
        max_num_seqs=slots,
    )
    return Scenario(config, requests).run()


def reused_and_chunked() -> list[AnyEvent]:
    """A has computed 64 tokens and is gone. The first 32 of B's 64 are the same; the budget is 20 a step."""
    shared = range(1, 33)
    requests = [request("A", prompt("A", 64, shared), 1), request("B", prompt("B", 64, shared), 2, 5)]
    return run(requests, block_size=16, num_blocks=16, budget=20)


def preempted_from_the_tail() -> list[AnyEvent]:
    """A, B, C and D hold one block each of a pool of four. In step 1 A's next token needs another one."""
    requests = [
        request("A", prompt("A", 4), 3),
        request("B", prompt("B", 3), 2),
        request("C", prompt("C", 3), 2),
        request("D", prompt("D", 2), 3),
    ]
    return run(requests, num_blocks=4)


def shared_blocks_stay() -> list[AnyEvent]:
    """B, C and E share block 0. In step 7 B needs a block: C is preempted, but block 0 stays with the others."""
    shared = range(1, 5)
    requests = [
        request("E", prompt("E", 7, shared), 12),
        request("A", prompt("A", 4), 9, 1),
        request("B", prompt("B", 5, shared), 9, 2),
        request("C", prompt("C", 5, shared), 9, 3),
    ]
    return run(requests, num_blocks=7)


def a_bit_of_everything() -> list[AnyEvent]:
    """Chunks, a prefix hit, requests that are held, and a preemption."""
    shared = range(1, 13)
    requests = [
        request("A", prompt("A", 14, shared), 8),
        request("B", prompt("B", 13, shared), 12, 2),
        request("C", prompt("C", 9), 6, 3),
        request("D", prompt("D", 6), 9, 4),
    ]
    return run(requests, num_blocks=8, budget=12, slots=4)
