"""A real run and its simulation, side by side."""

from sim.comparison.compare import Comparison, compare
from sim.comparison.real_run import RealRun
from sim.comparison.traced_run import read_traced_run
from sim.comparison.vllm_run import read_vllm_run

__all__ = ["Comparison", "RealRun", "compare", "read_traced_run", "read_vllm_run"]
