"""The program around the kernels: the part of a step that no card makes faster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HostOverhead:
    """Time that the program takes for a step. The defaults are BLIS's fit to vLLM 0.15 on an H100."""

    step_s: float = 126e-6
    """Each step."""
    sequence_s: float = 4e-6
    """Each sequence of a step."""
    layer_s: float = 32e-6
    """Each layer of the model, each step: launches, and kernels too small to fill the card."""

    def of_step(self, num_sequences: int, num_layers: int) -> float:
        """Seconds for a step of so many sequences."""
        return self.step_s + num_sequences * self.sequence_s + num_layers * self.layer_s


BLIS_HOST = HostOverhead()
"""For kernels of which nothing but bytes and operations is known."""
BLIS_GAP = HostOverhead(layer_s=0.0)
"""For kernels whose time was measured with their launches."""
