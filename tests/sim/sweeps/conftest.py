"""What the small sweep comes to."""

from __future__ import annotations

import pytest

from sim.sweeps import Row, run_sweep
from tests.sim.sweeps.small import small_sweep


@pytest.fixture(scope="module")
def expected() -> list[Row]:
    """The rows of the small sweep."""
    return run_sweep(small_sweep(), num_jobs=1).rows
