"""The simulator as a whole: engine, backend and cost model, and what there is to wait for before they run.

The load: 2,048 requests of 512 tokens in and 128 out, all there at the start; 16-token blocks, room for all of them,
a budget of 16,384 tokens.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from nanovllm.config import Config
from sim.simulation import simulate
from sim.workload import WorkloadRequest

NUM_REQUESTS = 2_048
PROMPT_LEN = 512
OUTPUT_LEN = 128
BLOCK_SIZE = 16


def run_simulation(max_num_seqs: int, *, record: bool) -> tuple[float, float]:
    """Seconds of setting up and of the loop."""
    config = Config(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=16_384,
        kvcache_block_size=BLOCK_SIZE,
        num_kvcache_blocks=NUM_REQUESTS * (PROMPT_LEN + OUTPUT_LEN) // BLOCK_SIZE,
    )
    start_s = time.perf_counter()
    workload = [
        WorkloadRequest(id=index, prompt_len=PROMPT_LEN, max_tokens=OUTPUT_LEN) for index in range(NUM_REQUESTS)
    ]
    result = simulate(config, workload, record=record)
    return time.perf_counter() - start_s - result.loop_time_s, result.loop_time_s


def import_time_s() -> float:
    """Seconds that ``import nanovllm, sim`` takes in a fresh interpreter."""
    program = "import time; start_s = time.perf_counter(); import nanovllm, sim; print(time.perf_counter() - start_s)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(repeats: int) -> dict[str, float]:
    """Medians over ``repeats`` runs after one that is not counted."""
    figures = {"import_nanovllm_and_sim_s": statistics.median(import_time_s() for _ in range(repeats + 1))}
    for max_num_seqs in (256, NUM_REQUESTS):
        for record in (False, True):
            runs = [run_simulation(max_num_seqs, record=record) for _ in range(repeats + 1)][1:]
            name = f"simulation_{max_num_seqs}_seqs_{'traced' if record else 'silent'}"
            figures[f"{name}_loop_s"] = statistics.median(loop_s for _, loop_s in runs)
            if not record:
                figures[f"{name}_setup_s"] = statistics.median(setup_s for setup_s, _ in runs)
                figures[f"{name}_tokens_per_s"] = NUM_REQUESTS * OUTPUT_LEN / figures[f"{name}_loop_s"]
    return figures
