"""``LLM``: a model, ready to generate."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nanovllm.config import DEFAULT_MODEL_LEN, Config
from nanovllm.engine.policies import find_scheduler
from nanovllm.llm.generator import TextGenerator
from nanovllm.llm.text_engine import TextEngine
from nanovllm.llm.tokenizer import load_tokenizer
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import Emit
from nanovllm.trace.jsonl import TraceWriter
from nanovllm.trace.recorder import Recorder

TraceTarget = str | Path | Recorder | Emit


class LLM(TextGenerator):
    """A model that is loaded from a directory, the Hugging Face Hub, or built in.

    >>> from nanovllm import LLM, SamplingParams
    >>> llm = LLM("smollm2-135m")
    >>> outputs = llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8))
    >>> outputs[0].text, outputs[0].finish_reason, outputs[0].metrics.ttft_s

    nano-vLLM's example and benchmark scripts run unchanged. A context manager; else ``close()`` frees the memory.
    """

    def __init__(self, model: str | os.PathLike[str], *, trace: TraceTarget | None = None, **options: Any) -> None:
        """``options`` are the fields of ``Config``. Three defaults depend on the model: ``max_model_len`` is its number
        of positions, at most ``DEFAULT_MODEL_LEN``, ``eos`` are the ids that its files and its tokenizer name, and
        ``num_kvcache_blocks`` is what it leaves room for.

        ``trace``: where the events go, from the first to the last call: a file (see ``TraceWriter``), a
        ``Recorder``, or a function that is called with each.

        Raises ``ConfigError`` for options, ``ModelError`` for a model and ``MemoryPoolError`` for a size that won't
        do.
        """
        from nanovllm.runner.model_directory import resolve_model
        from nanovllm.runner.model_runner import ModelRunner

        config = Config.from_options(model=os.fspath(model), **options)
        find_scheduler(config.policy)  # whose mistakes shall not wait for a model to be loaded
        path = resolve_model(config.model)
        num_positions = ModelSpec.from_directory(path).max_position_embeddings
        config = config.for_positions(num_positions, DEFAULT_MODEL_LEN)
        tokenizer = load_tokenizer(path)
        with ExitStack() as resources:
            emit = _open_trace(trace, resources)
            runner = ModelRunner(replace(config, model=str(path)))
            resources.callback(runner.close)
            if "eos" not in options:
                eos_token_ids = runner.eos_token_ids | {tokenizer.eos_token_id} - {None}
                config = replace(config, eos=tuple(sorted(eos_token_ids)))
            engine = TextEngine(config, runner, tokenizer, emit=emit, vocab_size=runner.vocab_size)
            resources.callback(engine.close)
            # Also when the last reference goes, and at the end of the process: the trace shall be whole.
            self._close = weakref.finalize(self, resources.pop_all().close)
        super().__init__(engine, tokenizer)
        self._runner = runner

    @contextmanager
    def profile(self, path: str | Path) -> Iterator[None]:
        """Write what the program and the card do within the block to ``path``, as torch's profiler sees it: see
        ``nanovllm.runner.profiling``. Raises ``TraceError`` if the file cannot be written.

        >>> with llm.profile("profile.json.gz"):
        ...     llm.generate(["The capital of France is"])
        """
        from nanovllm.runner.profiling import profile_steps

        with profile_steps(self._runner, lambda: self.engine.step_index, path):
            yield

    def close(self) -> None:
        """Free the memory and close the trace. Calling it again does nothing."""
        self._close()


def _open_trace(trace: TraceTarget | None, resources: ExitStack) -> Emit | None:
    if isinstance(trace, (str, Path)):
        return resources.enter_context(TraceWriter(trace)).emit
    return trace.emit if isinstance(trace, Recorder) else trace
