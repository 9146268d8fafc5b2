"""The backend that runs a real model: weights, KV pool, forward pass and sampling on one device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nanovllm.config import DEFAULT_MODEL_LEN, Config
from nanovllm.engine.backend import PendingStep, StepTimes
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError, MemoryPoolError, StepError
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.dummy_weights import fill_with_random_weights
from nanovllm.runner.facts import card_name, versions
from nanovllm.runner.kv_cache import allocate_pool, block_bytes, cpu_num_blocks, num_blocks_within
from nanovllm.runner.memory import first_line, gib, is_out_of_memory, memory_bytes
from nanovllm.runner.model_directory import read_eos_token_ids, resolve_model
from nanovllm.runner.pending import CardStep, CpuStep
from nanovllm.runner.profiling import Annotate
from nanovllm.runner.steps import Steps, choose_attention, do_nothing, new_steps
from nanovllm.runner.weights import load_weights
from nanovllm.sampling_params import SamplingParams


class ModelRunner:
    """The ``Backend`` protocol on torch: on a CPU or one CUDA card."""

    def __init__(self, config: Config, *, spec: ModelSpec | None = None) -> None:
        """Load ``config.model``; or, given a ``spec``, make a model of that shape with random weights drawn from
        ``config.seed``.

        Raises ``ModelError`` for a model that is missing or not supported, ``ConfigError`` for options that this
        machine cannot serve, ``MemoryPoolError`` if weights or KV pool do not fit.
        """
        if config.tensor_parallel_size != 1:
            raise ConfigError("tensor_parallel_size", config.tensor_parallel_size, "only 1 is supported")
        self.device = _choose_device(config.device)
        self.model_path: Path | None = None
        """The model's directory; None for random weights."""
        self.eos_token_ids: frozenset[int] = frozenset()
        """What the model's own files say ends a text."""
        if spec is None:
            self.model_path = resolve_model(config.model)
            self.eos_token_ids = read_eos_token_ids(self.model_path)
            spec = ModelSpec.from_directory(self.model_path)
        self.spec = spec
        if config.max_model_len == -1:
            config = config.for_positions(spec.max_position_embeddings, DEFAULT_MODEL_LEN)
        self.config = config
        self.dtype = _choose_dtype(config.dtype, spec, self.device)
        self._model: Decoder | None = self._load_model()
        choice = choose_attention(config, spec, self.device, self.dtype)
        self.attention = choice.attention
        """Which implementation attends: ``torch``, ``triton`` or ``flash``."""
        self.attention_reason = choice.reason
        """Why that one, in words."""
        self.step_times = StepTimes(0.0, 0.0)
        """See ``ObservedBackend``."""
        self.annotate: Annotate = nullcontext
        """Entered around the host's work for each batch; see ``profiling``."""
        self.num_kv_blocks = self._count_kv_blocks()
        self._steps: Steps | None = self._new_steps(self.num_kv_blocks, config)
        self._record_graphs(self._steps)
        self._takes_unknown_tokens = self._steps.takes_unknown_tokens
        if self._takes_unknown_tokens:  # what they sample stays on the card: the next need not wait for the host
            self.submit = self._submit

    @property
    def name(self) -> str:
        """``cpu``, or ``cuda`` and the implementation of the attention."""
        return "cpu" if self.device.type == "cpu" else f"{self.device.type}, {self.attention} attention"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """See ``ObservedBackend``."""
        return {
            "device": card_name(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "attention": self.attention,
            "attention_reason": self.attention_reason,
            "cuda_graphs": self._takes_unknown_tokens and not self.config.enforce_eager,
            "tensor_parallel_size": self.config.tensor_parallel_size,
            **versions(self.device),
        }

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return self.spec.vocab_size

    @property
    def max_model_len(self) -> int:
        """The longest sequence that both the config and the model allow, in tokens."""
        return min(self.config.max_model_len, self.spec.max_position_embeddings)

    # ---- the step --------------------------------------------------------------------------------------------

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``. Raises ``StepError`` if the step needs more memory than there is."""
        return self._submit(batch).result()

    def _submit(self, batch: ScheduledBatch) -> PendingStep:
        """See ``AsynchronousBackend.submit``."""
        step = (CardStep if self.device.type == "cuda" else CpuStep)(self._note_times)
        with self.annotate(batch):
            step.send(self._compute(batch, step.start))
        return step

    def _note_times(self, times: StepTimes) -> None:
        self.step_times = times

    def _compute(self, batch: ScheduledBatch, before_launch: Callable[[], object] = do_nothing) -> Tensor:
        assert self._steps is not None, "the runner is closed"
        self._steps.before_launch = before_launch
        if self.config.num_threads != -1:
            torch.set_num_threads(self.config.num_threads)  # here: the setting is the process's, or one thread's
        try:
            return self._steps.compute(batch.sequences)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = first_line(error)
        # Outside of the handler: while it runs, the traceback keeps the tensors of the failed step.
        self._release_cached_memory()
        raise StepError(
            f"a step of {batch.num_tokens} tokens in {len(batch.sequences)} sequences ran out of memory on "
            f"{self.device}: lower max_num_batched_tokens or max_num_seqs ({reason})"
        )

    def close(self) -> None:
        """Give back the memory of weights and KV pool."""
        self._model = self._steps = None
        self._release_cached_memory()

    def _release_cached_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # ---- set-up ----------------------------------------------------------------------------------------------

    def _load_model(self) -> Decoder:
        needed_bytes, free_bytes = self.spec.num_parameters * self.dtype.itemsize, memory_bytes(self.device)
        if needed_bytes > free_bytes:
            missing, dtype = gib(needed_bytes - free_bytes), str(self.dtype).removeprefix("torch.")
            raise MemoryPoolError(
                f"the weights need {gib(needed_bytes)} as {dtype}, {missing} more than there are on {self.device}: "
                f"choose a smaller model or dtype"
            )
        with torch.device(self.device):
            model = Decoder(self.spec, max_position=self.config.max_model_len, dtype=self.dtype)
        if self.model_path is None:
            fill_with_random_weights(model, self.config.seed)
        else:
            load_weights(model, self.model_path)
        return model.eval()

    def _new_steps(self, num_blocks: int, config: Config) -> Steps:
        assert self._model is not None, "the runner is closed"
        pool = allocate_pool(self.spec, num_blocks, config.kvcache_block_size, self.dtype, self.device)
        return new_steps(self.attention, config, self.spec, self._model, pool)

    def _count_kv_blocks(self) -> int:
        config = self.config
        if config.num_kvcache_blocks != -1:
            return config.num_kvcache_blocks
        bytes_per_block = block_bytes(self.spec, config.kvcache_block_size, self.dtype)
        if self.device.type == "cpu":
            return cpu_num_blocks(config, bytes_per_block)
        return num_blocks_within(self._measure_pool_budget_bytes(), config, bytes_per_block)

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
        torch.cuda.empty_cache()
        free_bytes, total_bytes = torch.cuda.mem_get_info(self.device)
        weight_bytes = self.spec.num_parameters * self.dtype.itemsize
        share_bytes = int(total_bytes * self.config.gpu_memory_utilization)
        return min(share_bytes - weight_bytes, free_bytes) - step_bytes - graph_bytes

    def _measure_largest_steps(self) -> tuple[int, int]:
        """Bytes that are enough for a prefill of the whole token budget and for a decode step of as many sequences as
        may run; and bytes of the CUDA graphs."""
        torch.cuda.empty_cache()
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

    def _record_graphs(self, steps: Steps) -> None:
        try:
            steps.record_graphs()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise MemoryPoolError(
                f"beside a KV pool of {self.num_kv_blocks} blocks there is no room on {self.device} for CUDA graphs: "
                f"lower num_kvcache_blocks, gpu_memory_utilization or max_num_seqs, or set enforce_eager "
                f"({first_line(error)})"
            ) from None

    def _dummy_sequence(self, num_tokens: int) -> Sequence:
        # Top-p is what takes the sampler most memory. All blocks are the pool's only one: what is computed is
        # thrown away.
        seq = Sequence([0] * num_tokens, SamplingParams(top_p=0.5), request_id=0)
        seq.block_table = [0] * -(-num_tokens // self.config.kvcache_block_size)
        seq.num_scheduled_tokens = num_tokens
        return seq


def _choose_device(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if name == "cuda":
        raise ConfigError("device", name, "torch finds no NVIDIA GPU on this machine; cpu or auto would do")
    return torch.device("cpu")


def _choose_dtype(name: str, spec: ModelSpec, device: torch.device) -> torch.dtype:
    if name == "auto":
        name = "float32" if device.type == "cpu" else spec.dtype
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), f"{name} is not a type of torch's"
    return dtype
