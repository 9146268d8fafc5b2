"""How much of a workload's prompts a prefix cache can reuse, how much it does, and where the rest goes.

Counting repeated blocks in a trace says what an endless cache could know. An engine reuses less: never a prompt's last
block, nothing that is not computed yet, nothing that was evicted. Here each block of the difference has its cause.
"""

from sim.prefix_reuse.account import ReuseAccount
from sim.prefix_reuse.causes import GAINS, MISSES, Gain, Miss
from sim.prefix_reuse.measure import ReuseRun, account_for_reuse, num_blocks_for_all, reuse_by_pool

__all__ = [
    "GAINS",
    "MISSES",
    "Gain",
    "Miss",
    "ReuseAccount",
    "ReuseRun",
    "account_for_reuse",
    "num_blocks_for_all",
    "reuse_by_pool",
]
