"""Large simulations, each measured as a whole process: ``python -m sim.benchmarks.large_runs NAME [FILE]``.

========== ==================================================================================================
``poisson`` 2,048 requests of 512 tokens in and 128 out, 4 a second
``azure``   all of an Azure trace, ``FILE``; its hour of conversation has 19,366 requests
``many``    requests of a few dozen tokens, 1,000 a second, ``--requests`` of them
========== ==================================================================================================

All on one A100 of 80 GB with Llama-3.1-8B, 16-token blocks and the policy ``mixed``, but for ``many``, which has the
small default model on an H200. Everything is measured and the whole trace written, in compact form.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nanovllm.config import Config
from nanovllm.trace.second_process import observe
from sim.generators import fixed, independent_requests, poisson, uniform
from sim.readers import read_azure
from sim.simulation import simulate
from sim.workload import WorkloadRequest

NAMES = ("poisson", "azure", "many")


def _load(name: str, file: Path | None, num_requests: int) -> tuple[Iterable[WorkloadRequest], dict[str, Any]]:
    """Requests, and what they run on."""
    card = {"gpu": "a100-80gb", "model": "llama-3.1-8b"}
    if name == "azure":
        assert file is not None, "the trace is a file"
        return read_azure(file), card
    if name == "poisson":
        return independent_requests(2_048, prompt_len=fixed(512), output_len=fixed(128), arrivals=poisson(4.0)), card
    short = independent_requests(
        num_requests, prompt_len=uniform(16, 64), output_len=uniform(4, 12), arrivals=poisson(1_000.0)
    )
    return short, {"gpu": "h200", "model": None}


def run(name: str, file: Path | None, num_requests: int, trace: Path) -> dict[str, float]:
    """Simulate a load in this process and write its trace."""
    requests, card = _load(name, file, num_requests)
    config = Config(policy="mixed", kvcache_block_size=16)
    start_s = time.perf_counter()
    with observe(trace) as observer:
        result = simulate(config, requests, record=False, listeners=[observer.take], **card)
    metrics = observer.metrics()
    wall_s = time.perf_counter() - start_s
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "requests": metrics.num_requests,
        "steps": result.num_steps,
        "output_tokens": metrics.output_tokens,
        "wall_s": wall_s,
        "cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "largest_process_mb": max(usage.ru_maxrss for usage in usages) * 1024 / 1e6,  # Linux tells KiB
        "trace_mb": trace.stat().st_size / 1e6,
    }


def measure(name: str, file: Path | None = None, num_requests: int = 0) -> dict[str, float]:
    """The figures of a load, from a fresh process."""
    command = [sys.executable, "-m", "sim.benchmarks.large_runs", name, "--requests", str(num_requests)]
    done = subprocess.run([*command, *([str(file)] if file else [])], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return {f"{name}_{key}": value for key, value in figures.items()}


def main() -> None:
    """Print the figures of one load as JSON."""
    parser = argparse.ArgumentParser(prog="python -m sim.benchmarks.large_runs", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("file", nargs="?", type=Path, help="the trace of azure")
    parser.add_argument("--requests", type=int, default=1_000_000, help="of many (default a million)")
    arguments = parser.parse_args()
    if arguments.name == "azure" and arguments.file is None:
        parser.error("azure needs the trace's file")
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "run.nvtrace"
        sys.stdout.write(json.dumps(run(arguments.name, arguments.file, arguments.requests, trace)) + "\n")


if __name__ == "__main__":
    main()
