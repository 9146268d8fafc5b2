"""A step can be no faster than its bytes and its arithmetic allow; the roofline model says that it is just as fast.

Every number below follows from the shape of the model and two rates of the card. What no roofline knows is the
program around the kernels: three constants stand for it, as fitted by others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.model_spec import ModelSpec
from sim.cost_models.host import BLIS_HOST, HostOverhead
from sim.cost_models.step_time import StepTime
from sim.hardware import GPU

ALL_REDUCE_LATENCY_S = 8e-6
"""Assumed time of an all-reduce of next to nothing among the cards of one host."""

_num_tokens = attrgetter("num_tokens")


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The time of a step from ``model``, ``gpu`` and the number of GPUs that share each layer."""

    model: ModelSpec
    gpu: GPU
    tensor_parallel_size: int = 1
    host: HostOverhead = BLIS_HOST

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """See ``CostModel``. Every scheduled token is charged, also one that was computed before a preemption."""
        seqs = batch.sequences
        if batch.is_prefill:
            num_new = [seq.num_scheduled_tokens for seq in seqs]
            num_seen = [seq.num_cached_tokens + seq.num_scheduled_tokens for seq in seqs]
            # Each new token sees itself and all before it.
            num_pairs = sum(new * seen - new * (new - 1) // 2 for new, seen in zip(num_new, num_seen, strict=True))
            return self.predict(len(seqs), sum(num_new), sum(num_seen), num_pairs)
        num_kv_tokens = sum(map(_num_tokens, seqs))
        return self.predict(len(seqs), len(seqs), num_kv_tokens, num_kv_tokens)

    def predict(self, num_seqs: int, num_tokens: int, num_kv_tokens: int, num_pairs: int) -> StepTime:
        """The time of a step that computes ``num_tokens`` tokens of ``num_seqs`` sequences, attends to
        ``num_kv_tokens`` cached and new tokens, and to ``num_pairs`` pairs of a new token and one that it sees."""
        weights_s = self._weights_s + num_tokens * self._activations_s_per_token + num_seqs * self._logits_s_per_seq
        matmul_s = num_tokens * self._matmul_s_per_token + num_seqs * self._head_s_per_seq
        kv_read_s = num_kv_tokens * self._kv_s_per_token
        attention_s = num_pairs * self._attention_s_per_pair
        return StepTime(
            weights_s=weights_s,
            matmul_s=max(0.0, matmul_s - weights_s),
            kv_traffic_s=kv_read_s + num_tokens * self._kv_s_per_token,
            attention_s=max(0.0, attention_s - kv_read_s),
            communication_s=self._communication_s(num_seqs, num_tokens) if self.tensor_parallel_size > 1 else 0.0,
            host_s=self.host.of_step(num_seqs, self.model.num_layers),
        )

    @cached_property
    def _share(self) -> ModelSpec:
        """What each GPU holds, and computes with."""
        return self.model.share_of(self.tensor_parallel_size)

    # ---- memory: bytes over the rate that programs reach -----------------------------------------------------

    @cached_property
    def _weights_s(self) -> float:
        """Each GPU reads all its matrices. Of the embedding only the rows of the tokens are read."""
        share = self._share
        return self._moving_s(share.num_layers * share.num_layer_matrix_weights + share.vocab_size * share.hidden_size)

    @cached_property
    def _activations_s_per_token(self) -> float:
        """What the four matrix products of all layers take and give: hidden states whole, the rest shared out."""
        share = self._share
        num_shared_out = 2 * share.q_size + 2 * share.kv_size + 3 * share.intermediate_size
        return self._moving_s(share.num_layers * (4 * share.hidden_size + num_shared_out))

    @cached_property
    def _logits_s_per_seq(self) -> float:
        """The head takes a hidden state and gives logits."""
        return self._moving_s(self._share.hidden_size + self._share.vocab_size)

    @cached_property
    def _kv_s_per_token(self) -> float:
        return self._share.kv_bytes_per_token / self.gpu.achievable_bandwidth_bytes_per_s

    def _moving_s(self, num_values: float) -> float:
        return num_values * self.model.dtype_bytes / self.gpu.achievable_bandwidth_bytes_per_s

    # ---- arithmetic: operations over the rate that matrix products reach -------------------------------------

    @cached_property
    def _matmul_s_per_token(self) -> float:
        return self._computing_s(self._share.matmul_flops_per_token)

    @cached_property
    def _head_s_per_seq(self) -> float:
        return self._computing_s(self._share.head_flops_per_token)

    @cached_property
    def _attention_s_per_pair(self) -> float:
        return self._computing_s(self._share.attention_flops(1, 1))

    def _computing_s(self, num_flops: float) -> float:
        return num_flops / self.gpu.achievable_flops_per_s(self.model.dtype)

    # ---- between GPUs ----------------------------------------------------------------------------------------

    def _communication_s(self, num_seqs: int, num_tokens: int) -> float:
        """Two all-reduces of the hidden states a layer, and one gathering of the logits. In a ring of n GPUs each
        sends (n - 1) / n of the data twice (once to gather)."""
        model, num_gpus = self.model, self.tensor_parallel_size
        hidden_bytes = num_tokens * model.hidden_size * model.dtype_bytes
        logits_bytes = num_seqs * model.vocab_size * model.dtype_bytes
        num_all_reduces = 2 * model.num_layers
        sent_bytes = (num_all_reduces * 2 * hidden_bytes + logits_bytes) * (num_gpus - 1) / num_gpus
        return sent_bytes / self.gpu.link_bytes_per_s + (num_all_reduces + 1) * ALL_REDUCE_LATENCY_S
