"""Runs of a load on a real backend, measured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nanovllm.checks import check_positive
from nanovllm.cli.console import print_note
from nanovllm.config import Config
from nanovllm.errors import WorkloadError
from nanovllm.trace.metrics.step_times import PhaseTimes, StepTimesCollector

if TYPE_CHECKING:
    from nanovllm.engine.engine import Engine
    from nanovllm.runner.model_runner import ModelRunner
    from nanovllm.trace.events import Emit
    from sim import SimulationResult
    from sim.workload import WorkloadRequest


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """One run of one load."""

    load: str
    repetition: int
    is_traced: bool
    tokens_per_s: float
    """Generated tokens over the time from the first step's start to the last one's end."""
    bound_tokens_per_s: float | None
    """What bytes and operations alone would allow, see ``Bound``; None if the machine's rates are not known."""
    wall_s: float
    steps: dict[str, PhaseTimes]
    """Phase -> what its steps took."""

    @property
    def share_of_bound(self) -> float | None:
        """1: as fast as bytes and operations allow."""
        return None if self.bound_tokens_per_s is None else self.tokens_per_s / self.bound_tokens_per_s

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        figures: dict[str, Any] = msgspec.to_builtins(self)
        return figures | {"share_of_bound": self.share_of_bound}


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Of a card, for the bound. Raises ``ConfigError`` for one that is no number above 0."""

    copy_bytes_per_s: float
    matmul_flops_per_s: float

    def __post_init__(self) -> None:
        check_positive("copy_bandwidth", self.copy_bytes_per_s)
        check_positive("matmul_rate", self.matmul_flops_per_s)


class Bench:
    """A load on a ``runner``, to be run as often as one likes."""

    def __init__(self, load: str, runner: ModelRunner, config: Config, rates: Rates | None) -> None:
        """``load``: the name of a reference load, or a workload file. ``rates``: None if there is to be no bound.

        Raises ``WorkloadError`` for a load that cannot be read, or none of whose requests can run.
        """
        self.load = load
        self._runner = runner
        self._config = config
        requests = self._read(0)
        any_rates = rates or Rates(copy_bytes_per_s=1.0, matmul_flops_per_s=1.0)
        result = _simulate_bound(requests, runner, config, any_rates)
        self.num_rejected = len(result.rejected)
        """Requests that can never run."""
        if self.num_rejected == len(requests):
            raise WorkloadError(load, f"none of its requests can run; {result.rejected[0][1]}")
        self._bound_s = None if rates is None else result.time_s

    def _read(self, repetition: int) -> list[WorkloadRequest]:
        from sim.generators.reference import REFERENCE_LOADS
        from sim.workload import read_workload

        is_reference = self.load in REFERENCE_LOADS
        return REFERENCE_LOADS[self.load](repetition) if is_reference else read_workload(Path(self.load))

    def run(self, repetition: int, emit: Emit | None = None, profile: Path | None = None) -> BenchResult:
        """Run it. The prompts of a reference load differ from one ``repetition`` to the next. ``emit`` hears of the
        events; ``profile``: write a profile there."""
        from nanovllm.engine.engine import Engine
        from sim.workload import Prompts, to_requests

        vocab_size = self._runner.vocab_size
        requests = list(to_requests(self._read(repetition), Prompts(seed=self._config.seed, vocab_size=vocab_size)))
        # After the requests have been made: its clock starts, and they arrive by it.
        engine = Engine(self._config, self._runner, emit=emit, vocab_size=vocab_size)
        if profile is None:
            num_tokens, wall_s, steps = _run(engine, requests)
        else:
            from nanovllm.runner.profiling import profile_steps

            with profile_steps(self._runner, lambda: engine.step_index, profile):
                num_tokens, wall_s, steps = _run(engine, requests)
        for _, error in engine.rejected:
            print_note(str(error))
        return BenchResult(
            load=self.load,
            repetition=repetition,
            is_traced=emit is not None,
            tokens_per_s=num_tokens / wall_s,
            bound_tokens_per_s=None if self._bound_s is None else num_tokens / self._bound_s,
            wall_s=wall_s,
            steps=steps,
        )


def _run(engine: Engine, requests: Iterable[Any]) -> tuple[int, float, dict[str, PhaseTimes]]:
    """Generated tokens, seconds, and what the steps took."""
    steps = StepTimesCollector()
    num_tokens = 0
    start_s = time.perf_counter()
    for result in engine.run(requests):
        steps.take(result.batch.phase, result.finished_s - result.started_s, result.host_s, result.device_s)
        num_tokens += sum(seq.num_completion_tokens for seq in result.finished)
    return num_tokens, time.perf_counter() - start_s, steps.result()


def _simulate_bound(
    requests: Iterable[WorkloadRequest], runner: ModelRunner, config: Config, rates: Rates
) -> SimulationResult:
    """The same run, decision by decision, on cards that do nothing but read and multiply, each its own part."""
    from sim import simulate
    from sim.cost_models.bound import Bound

    num_cards = config.tensor_parallel_size
    bound = Bound(
        model=runner.spec,
        bandwidth_bytes_per_s=num_cards * rates.copy_bytes_per_s,
        flops_per_s=num_cards * rates.matmul_flops_per_s,
        shared_block_size=config.kvcache_block_size,
    )
    config = replace(config, num_kvcache_blocks=runner.num_kv_blocks, tensor_parallel_size=1)
    return simulate(config, requests, model=runner.spec, cost_model=bound, record=False)
