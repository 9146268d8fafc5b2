"""The whole way: measure a backend, fit its coefficients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from nanovllm.config import Config
from nanovllm.engine.backend import AsynchronousBackend, Backend, ObservedBackend
from nanovllm.errors import UserError
from nanovllm.model_spec import ModelSpec
from sim.calibration.engine_time import measure_engine, measure_requests
from sim.calibration.file import Calibration, short_name
from sim.calibration.fit import fit_device, fit_engine, fit_host, fit_requests
from sim.calibration.measure import measure_steps
from sim.calibration.plan import plan_steps
from sim.cost_models.fitted import NO_SIZES, Sizes
from sim.cost_models.shape import KINDS

_FEWEST_STEPS = 4
"""Of each kind: below, nothing can be said of the error."""


def calibrate(
    backend: Backend,
    config: Config,
    *,
    model: str,
    vocab_size: int,
    shape: ModelSpec | None = None,
    reads_shared_blocks_once: bool = False,
    sizes: Sizes = NO_SIZES,
    report: Callable[[int, int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure ``backend``, which runs ``model`` with these options (``max_model_len`` chosen), and fit its steps.

    ``shape``: the model's; the result then holds for no other, whatever its name. ``reads_shared_blocks_once``: leading
    blocks that several decodes share cost it once. ``sizes``: to what it pads steps. ``report`` is called with the
    number of steps measured and planned. ``clock``: seconds, as a stopwatch has them. Raises ``UserError`` if the
    options leave too few steps to measure.
    """
    config = replace(config, num_kvcache_blocks=backend.num_kv_blocks)
    block_size = config.kvcache_block_size
    plan = plan_steps(config, reads_shared_blocks_once=reads_shared_blocks_once)
    planned = Counter(step.kind for step in plan)
    for kind in KINDS:
        if planned[kind] < _FEWEST_STEPS:
            limits = ("num_kvcache_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
            told = ", ".join(f"{name}={getattr(config, name)}" for name in limits)
            raise UserError(f"too few {kind} steps can be measured with {told}: {_FEWEST_STEPS} or more are needed")
    shared_block_size = block_size if reads_shared_blocks_once else None
    steps = []
    for step in measure_steps(
        backend, plan, block_size, vocab_size=vocab_size, shared_block_size=shared_block_size, clock=clock
    ):
        steps.append(step)
        if report is not None:
            report(len(steps), len(plan))
    fitted, errors = fit_device(steps, sizes, shared_block_size)
    engine_s = fit_engine(list(measure_engine(config)))
    return Calibration(
        model=short_name(model),
        shape=shape,
        backend=backend.name,
        facts={
            **(backend.facts if isinstance(backend, ObservedBackend) else {}),
            "lookahead": isinstance(backend, AsynchronousBackend),
            "gpu_memory_utilization": config.gpu_memory_utilization,
        },
        block_size=block_size,
        num_blocks=backend.num_kv_blocks,
        reads_shared_blocks_once=reads_shared_blocks_once,
        sizes=sizes,
        device=fitted.device,
        misfit=fitted.misfit,
        host={kind: backend_s + engine_s for kind, backend_s in fit_host(steps).items()},
        request=fit_requests(list(measure_requests(config))),
        errors=errors,
        steps=steps,
    )
