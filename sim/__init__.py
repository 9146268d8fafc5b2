"""The same engine on a modelled GPU: a backend that computes nothing and predicts each step's time."""

from sim.simulation import SimulationResult, simulate

__all__ = ["SimulationResult", "simulate"]
