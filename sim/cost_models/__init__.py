"""How long a step takes on a modelled GPU, and why: one protocol, one module an answer."""

from sim.cost_models.roofline import HostOverhead, Roofline
from sim.cost_models.step_time import CostModel, StepTime

__all__ = ["CostModel", "HostOverhead", "Roofline", "StepTime"]
