"""How long a step takes on a modelled GPU, and why: one protocol, one module an answer."""

from sim.cost_models.fitted import Fitted, Sizes
from sim.cost_models.host import HostOverhead
from sim.cost_models.roofline import Roofline
from sim.cost_models.step_time import (
    BoundedCostModel,
    CostModel,
    MeasuredCostModel,
    PooledCostModel,
    RequestCostModel,
    StepTime,
)
from sim.cost_models.table import Table

__all__ = [
    "BoundedCostModel",
    "CostModel",
    "Fitted",
    "HostOverhead",
    "MeasuredCostModel",
    "PooledCostModel",
    "RequestCostModel",
    "Roofline",
    "Sizes",
    "StepTime",
    "Table",
]
