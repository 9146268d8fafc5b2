"""What the benchmarks count; how long it takes is not judged."""

from __future__ import annotations

from pathlib import Path

from nanovllm.config import Config
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.recorder import Recorder
from sim.benchmarks import large_runs
from sim.benchmarks.control_plane import random_sequences, run_control_plane
from sim.benchmarks.simulation import import_time_s


def test_every_token_but_a_requests_first_is_a_decode_token() -> None:
    sequences, recorder = random_sequences(7, 2, 9), Recorder()
    result = run_control_plane(sequences, Config(num_kvcache_blocks=12, kvcache_block_size=4), recorder.emit)
    assert all(seq.is_finished for seq in sequences)
    num_preemptions = sum(seq.num_preemptions for seq in sequences)  # each of them ends in a prefill that samples
    assert result.num_decode_tokens == sum(seq.num_completion_tokens - 1 for seq in sequences) - num_preemptions
    assert num_preemptions > 0
    assert result.decode_tokens_per_s > 0


def test_importing_takes_some_time() -> None:
    assert import_time_s() > 0


def test_a_large_run_is_measured_and_its_trace_is_whole(tmp_path: Path) -> None:
    figures = large_runs.run("many", None, 30, tmp_path / "run.nvtrace")
    trace = read_trace(tmp_path / "run.nvtrace")
    assert trace.complete
    assert figures["requests"] == 30
    assert figures["trace_mb"] == (tmp_path / "run.nvtrace").stat().st_size / 1e6
