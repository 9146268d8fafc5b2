"""The backend that runs a real model: weights, KV pool, forward pass and sampling, on one device or several."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nanovllm.config import DEFAULT_MODEL_LEN, Config
from nanovllm.engine.backend import PendingStep, StepTimes
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import ConfigError
from nanovllm.layers.group import SingleGroup
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.facts import card_name, versions
from nanovllm.runner.graphs import GraphSizes
from nanovllm.runner.model_directory import read_eos_token_ids, resolve_model
from nanovllm.runner.pending import CardStep, CpuStep
from nanovllm.runner.profiling import Annotate
from nanovllm.runner.rank import Rank
from nanovllm.runner.steps import do_nothing
from nanovllm.runner.tensor_parallel.devices import devices_of_ranks, threads_of_rank
from nanovllm.runner.tensor_parallel.workers import Workers


class ModelRunner(Rank):
    """The ``Backend`` protocol on torch: on a CPU, on one CUDA card, or as rank 0 of several."""

    def __init__(self, config: Config, *, spec: ModelSpec | None = None) -> None:
        """Load ``config.model``; or, given a ``spec``, make a model of that shape with random weights drawn from
        ``config.seed``.

        Raises ``ModelError`` for a model that is missing or not supported, ``ConfigError`` for options that this
        machine cannot serve, ``MemoryPoolError`` if weights or KV pool do not fit, ``WorkerError`` if the process of
        another rank fails.
        """
        device = _choose_device(config.device)
        model_path = None
        self.eos_token_ids: frozenset[int] = frozenset()
        """What the model's own files say ends a text."""
        if spec is None:
            model_path = resolve_model(config.model)
            self.eos_token_ids = read_eos_token_ids(model_path)
            spec = ModelSpec.from_directory(model_path)
        self.spec = spec
        """Of the whole model."""
        if config.max_model_len == -1:
            config = config.for_positions(spec.max_position_embeddings, DEFAULT_MODEL_LEN)
        self.step_times = StepTimes(0.0, 0.0)
        """See ``ObservedBackend``."""
        self.annotate: Annotate = nullcontext
        """Entered around the host's work for each batch; see ``profiling``."""
        self._workers: Workers | None = None
        if config.tensor_parallel_size == 1:
            super().__init__(config, spec, model_path, device, SingleGroup())
            self.num_kv_blocks = self.count_kv_blocks()
            self._takes_unknown_tokens = self.allocate(self.num_kv_blocks)
        else:
            spec.check_tensor_parallel_size(config.tensor_parallel_size)
            devices = devices_of_ranks(config.tensor_parallel_size, device)
            config = replace(config, num_threads=threads_of_rank(config, device))
            self._workers = Workers(config, spec, model_path, devices)
            weakref.finalize(self, self._workers.close)  # also of a runner that nobody closes
            with self._workers.together():
                super().__init__(config, spec, model_path, device, self._workers.connect())
                self._workers.wait_until_loaded()
                self._workers.count()
                self.num_kv_blocks = self._workers.least_count(self.count_kv_blocks())
                self._workers.allocate(self.num_kv_blocks)
                self._takes_unknown_tokens = self.allocate(self.num_kv_blocks)
                self._workers.wait_until_allocated()
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
    def graph_sizes(self) -> GraphSizes:
        """Of its CUDA graphs."""
        assert self._steps is not None, "the runner is closed"
        return self._steps.graph_sizes

    @property
    def max_model_len(self) -> int:
        """The longest sequence that both the config and the model allow, in tokens."""
        return min(self.config.max_model_len, self.spec.max_position_embeddings)

    # ---- the step --------------------------------------------------------------------------------------------

    def execute(self, batch: ScheduledBatch) -> list[int]:
        """See ``Backend.execute``. Raises ``StepError`` if the step needs more memory than there is, ``WorkerError`` if
        the process of another rank has ended."""
        return self._submit(batch).result()

    def _submit(self, batch: ScheduledBatch) -> PendingStep:
        """See ``AsynchronousBackend.submit``."""
        step = (CardStep if self.device.type == "cuda" else CpuStep)(self._note_times)
        with self.annotate(batch):
            step.send(self._compute(batch, step.start))
        return step if self._workers is None else self._workers.watch(step)

    def _note_times(self, times: StepTimes) -> None:
        self.step_times = times

    def _compute(self, batch: ScheduledBatch, before_launch: Callable[[], object] = do_nothing) -> Tensor:
        if self._workers is None:
            return self.compute(batch.sequences, before_launch)
        self._workers.begin(batch, self.check_memory)
        with self._workers.together():
            return self.compute(batch.sequences, before_launch)

    def close(self) -> None:
        """Give back the memory of weights and KV pool, and end the processes of other ranks."""
        self.release()  # graphs go before the connections that they use
        if self._workers is not None:
            self._workers.close()


def _choose_device(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if name == "cuda":
        raise ConfigError("device", name, "torch finds no NVIDIA GPU on this machine; cpu or auto would do")
    return torch.device("cpu")
