"""Small simulations that a test can follow by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence
from nanovllm.trace.events import AnyEvent
from sim import SimulationResult, simulate
from sim.cost_models import StepTime
from sim.workload import WorkloadRequest

SMALL = Config(kvcache_block_size=4, num_kvcache_blocks=100, max_num_batched_tokens=64, max_num_seqs=8)


class SecondPerToken:
    """A cost model that a test can follow: each scheduled token takes a second."""

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        return StepTime(weights_s=float(sum(seq.num_scheduled_tokens for seq in batch.sequences)))


def requests(*shapes: tuple[int, int, float]) -> list[WorkloadRequest]:
    """(prompt, max_tokens, arrival) of each."""
    return [
        WorkloadRequest(id=i, prompt_len=prompt_len, max_tokens=max_tokens, arrival=arrival, ignore_eos=True)
        for i, (prompt_len, max_tokens, arrival) in enumerate(shapes)
    ]


def run(workload: Iterable[WorkloadRequest], config: Config = SMALL, **options: Any) -> SimulationResult:
    return simulate(config, workload, cost_model=SecondPerToken(), **options)


def as_bytes(events: list[AnyEvent]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, events))


def of_kind(result: SimulationResult, *kinds: type[AnyEvent]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kinds)]


def decode_of(*tables: list[int]) -> list[Sequence]:
    """Sequences that decode, with these block tables, of 4 tokens a block."""
    seqs = []
    for table in tables:
        seq = Sequence([1] * (4 * len(table)))
        seq.block_table, seq.num_scheduled_tokens = table, 1
        seqs.append(seq)
    return seqs
