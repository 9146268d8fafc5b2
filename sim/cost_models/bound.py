"""The time that no engine can beat: bytes over bandwidth, operations over the matrix rate, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.model_spec import ModelSpec
from sim.cost_models.shape import num_shared_blocks
from sim.cost_models.step_time import StepTime


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A decode step reads the weights once and the KV of every cached token once; a prefill is its multiply-adds.

    ``shared_block_size``: blocks, of this many tokens, that several sequences of a step hold are read once for all of
    them. None: each sequence reads its own tokens.
    """

    model: ModelSpec
    bandwidth_bytes_per_s: float
    flops_per_s: float
    shared_block_size: int | None = None

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """See ``CostModel``."""
        seqs = batch.sequences
        if batch.is_prefill:
            num_flops = batch.num_tokens * self.model.matmul_flops_per_token
            for seq in seqs:
                new, seen = seq.num_scheduled_tokens, seq.num_cached_tokens + seq.num_scheduled_tokens
                num_flops += self.model.attention_flops(1, 1) * (new * seen - new * (new - 1) // 2)
            return StepTime(matmul_s=num_flops / self.flops_per_s)
        num_kv_tokens = sum(seq.num_tokens for seq in seqs)
        if self.shared_block_size is not None:
            num_kv_tokens -= num_shared_blocks(seqs) * self.shared_block_size
        kv_bytes = num_kv_tokens * self.model.kv_bytes_per_token
        return StepTime(
            weights_s=self.model.weight_bytes / self.bandwidth_bytes_per_s,
            kv_traffic_s=kv_bytes / self.bandwidth_bytes_per_s,
        )
