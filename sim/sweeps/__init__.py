"""Many simulations: every combination of some settings, side by side on a machine or a cluster, kept in a store."""

from sim.sweeps.executors import LOCAL_CLUSTER
from sim.sweeps.row import Row, run_cell
from sim.sweeps.run import SweepResult, equal_rows, run_sweep
from sim.sweeps.store import read_sweep
from sim.sweeps.sweep import Cell, Sweep
from sim.sweeps.sweep_file import read_sweep_file

__all__ = [
    "LOCAL_CLUSTER",
    "Cell",
    "Row",
    "Sweep",
    "SweepResult",
    "equal_rows",
    "read_sweep",
    "read_sweep_file",
    "run_cell",
    "run_sweep",
]
