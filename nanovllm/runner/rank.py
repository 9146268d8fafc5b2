"""What one rank computes with: its part of the model, its KV pool, and the steps over both."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from nanovllm.config import Config
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import MemoryPoolError, StepError
from nanovllm.layers.group import Group
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.models.shard import num_parameters_of, shard_spec
from nanovllm.runner.dummy_weights import fill_with_random_weights
from nanovllm.runner.kv_cache import allocate_pool, block_bytes, cpu_num_blocks, num_blocks_within
from nanovllm.runner.memory import activation_bytes, first_line, gib, is_out_of_memory, memory_bytes
from nanovllm.runner.steps import Steps, choose_attention, do_nothing, new_steps
from nanovllm.runner.weights import load_weights
from nanovllm.sampling_params import SamplingParams


class Rank:
    """One of the ranks that share a model; a model on one device is that of a single rank.

    All ranks of a group go through the same calls in the same order: most of them compute together.
    """

    def __init__(
        self, config: Config, spec: ModelSpec, model_path: Path | None, device: torch.device, group: Group
    ) -> None:
        """Load this rank's part of the model in ``model_path`` or, if None, draw it from ``config.seed``. ``spec``: of
        the whole model. ``allocate`` makes it ready for steps.

        Raises ``ModelError`` for weights, ``ConfigError`` for options that this machine cannot serve,
        ``MemoryPoolError`` if the weights do not fit.
        """
        self.config = config
        self.device = device
        self.dtype = _choose_dtype(config.dtype, spec, device)
        self.model_path = model_path
        """The model's directory; None for random weights."""
        self._num_parameters = num_parameters_of(spec, group)
        self._model: Decoder | None = self._load_model(spec, group)
        self._shard_spec = shard_spec(spec, group)
        choice = choose_attention(config, self._shard_spec, device, self.dtype)
        self.attention = choice.attention
        """Which implementation attends: ``torch``, ``triton`` or ``flash``."""
        self.attention_reason = choice.reason
        """Why that one, in words."""
        self._steps: Steps | None = None

    # ---- the step --------------------------------------------------------------------------------------------

    def compute(self, sequences: list[Sequence], before_launch: Callable[[], object] = do_nothing) -> Tensor:
        """See ``Steps.compute``; ``before_launch`` as there. Raises ``StepError`` if the step needs more memory than
        there is."""
        assert self._steps is not None, "the runner is closed"
        self._steps.before_launch = before_launch
        if self.config.num_threads != -1:
            torch.set_num_threads(self.config.num_threads)  # here: the setting is the process's, or one thread's
        try:
            return self._steps.compute(sequences)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = first_line(error)
        # Outside of the handler: while it runs, the traceback keeps the tensors of the failed step.
        self._release_cached_memory()
        raise self._out_of_memory(sequences, reason)

    def check_memory(self, sequences: list[Sequence]) -> None:
        """Raise ``StepError`` unless there is room for what a step of these holds at a time; the allocator of the card
        keeps that room for it."""
        num_tokens = sum(seq.num_scheduled_tokens for seq in sequences)
        try:
            num_bytes = activation_bytes(self._shard_spec, num_tokens, len(sequences), self.dtype)
            torch.empty(num_bytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise self._out_of_memory(sequences, first_line(error)) from None

    def _out_of_memory(self, sequences: list[Sequence], reason: str) -> StepError:
        num_tokens = sum(seq.num_scheduled_tokens for seq in sequences)
        return StepError(
            f"a step of {num_tokens} tokens in {len(sequences)} sequences ran out of memory on "
            f"{self.device}: lower max_num_batched_tokens or max_num_seqs ({reason})"
        )

    def release(self) -> None:
        """Give back the memory of weights and KV pool."""
        self._model = self._steps = None
        self._release_cached_memory()

    def _release_cached_memory(self) -> None:
        if self.device.type == "cuda":
            gc.collect()  # graphs and the steps that they record know each other
            torch.cuda.empty_cache()

    # ---- set-up ----------------------------------------------------------------------------------------------

    def _load_model(self, spec: ModelSpec, group: Group) -> Decoder:
        needed_bytes, free_bytes = self._num_parameters * self.dtype.itemsize, memory_bytes(self.device)
        if needed_bytes > free_bytes:
            missing, dtype = gib(needed_bytes - free_bytes), str(self.dtype).removeprefix("torch.")
            raise MemoryPoolError(
                f"the weights need {gib(needed_bytes)} as {dtype}, {missing} more than there are on {self.device}: "
                f"choose a smaller model or dtype"
            )
        with torch.device(self.device):
            model = Decoder(spec, max_position=self.config.max_model_len, dtype=self.dtype, group=group)
        if self.model_path is None:
            fill_with_random_weights(model, self.config.seed)
        else:
            load_weights(model, self.model_path)
        return model.eval()

    def _new_steps(self, num_blocks: int, config: Config) -> Steps:
        assert self._model is not None, "the runner is closed"
        pool = allocate_pool(self._shard_spec, num_blocks, config.kvcache_block_size, self.dtype, self.device)
        return new_steps(self.attention, config, self._shard_spec, self._model, pool)

    def count_kv_blocks(self) -> int:
        """Blocks of the KV pool that there is memory for here, or that the config says. Raises ``MemoryPoolError`` if
        that is too few."""
        config = self.config
        if config.num_kvcache_blocks != -1:
            return config.num_kvcache_blocks
        bytes_per_block = block_bytes(self._shard_spec, config.kvcache_block_size, self.dtype)
        if self.device.type == "cpu":
            return cpu_num_blocks(config, bytes_per_block)
        return num_blocks_within(self._measure_pool_budget_bytes(), config, bytes_per_block)

    def allocate(self, num_blocks: int) -> bool:
        """Make a KV pool of so many blocks, and steps over it. Whether they take unknown tokens: see ``Steps``. Raises
        ``MemoryPoolError`` if there is no room."""
        self._steps = self._new_steps(num_blocks, self.config)
        try:
            self._steps.record_graphs()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise MemoryPoolError(
                f"beside a KV pool of {num_blocks} blocks there is no room on {self.device} for CUDA graphs: "
                f"lower num_kvcache_blocks, gpu_memory_utilization or max_num_seqs, or set enforce_eager "
                f"({first_line(error)})"
            ) from None
        return self._steps.takes_unknown_tokens

    def _measure_pool_budget_bytes(self) -> int:
        """What is left of this runner's share of the card beside its weights, the largest step and CUDA graphs; at most
        what really is free, whoever has taken the rest: other processes, CUDA itself."""
        try:
            step_bytes, graph_bytes = self._measure_largest_steps()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise MemoryPoolError(
                f"beside the weights there is no room on {self.device} for the largest step: lower "
                f"max_num_batched_tokens={self.config.max_num_batched_tokens} or "
                f"max_num_seqs={self.config.max_num_seqs} ({first_line(error)})"
            ) from None
        self._release_cached_memory()
        free_bytes, total_bytes = torch.cuda.mem_get_info(self.device)
        weight_bytes = self._num_parameters * self.dtype.itemsize
        share_bytes = int(total_bytes * self.config.gpu_memory_utilization)
        return min(share_bytes - weight_bytes, free_bytes) - step_bytes - graph_bytes

    def _measure_largest_steps(self) -> tuple[int, int]:
        """Bytes that are enough for a prefill of the whole token budget and for a decode step of as many sequences as
        may run; and bytes of the CUDA graphs."""
        self._release_cached_memory()
        torch.cuda.reset_peak_memory_stats(self.device)
        reserved_bytes = torch.cuda.memory_reserved(self.device)
        config = self.config
        steps = self._new_steps(1, config)
        num_seqs = min(config.max_num_seqs, config.max_num_batched_tokens)
        num_long_seqs = min(num_seqs, -(-config.max_num_batched_tokens // config.max_model_len))
        num_tokens = min(config.max_model_len, config.max_num_batched_tokens // num_long_seqs)
        steps.compute([self._dummy_sequence(num_tokens) for _ in range(num_long_seqs)])
        steps.compute([self._dummy_sequence(1) for _ in range(num_seqs)])
        step_bytes = torch.cuda.max_memory_reserved(self.device) - reserved_bytes
        return step_bytes, steps.measure_graph_bytes()

    def _dummy_sequence(self, num_tokens: int) -> Sequence:
        # Top-p is what takes the sampler most memory. All blocks are the pool's only one: what is computed is
        # thrown away.
        seq = Sequence([0] * num_tokens, SamplingParams(top_p=0.5), request_id=0)
        seq.block_table = [0] * -(-num_tokens // self.config.kvcache_block_size)
        seq.num_scheduled_tokens = num_tokens
        return seq


def _choose_dtype(name: str, spec: ModelSpec, device: torch.device) -> torch.dtype:
    if name == "auto":
        name = "float32" if device.type == "cpu" else spec.dtype
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), f"{name} is not a type of torch's"
    return dtype
