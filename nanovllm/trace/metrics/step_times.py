"""Where the time of steps went, phase by phase: to the program, to the device, and to waiting for the program."""

from __future__ import annotations

import msgspec

from nanovllm.trace.metrics.latency import Durations, Latency

_SMALLEST_SHARE = 1e-9
"""A smaller part of all time is what is left over of rounding: differences of sums of up to a million times are off by
as much as 1e-10."""


class PhaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Of the steps of one phase whose parts are told; see ``nanovllm.trace.events.StepFinished``."""

    num_steps: int
    duration_s: Latency
    """From a step's start to its end."""
    host_s: Latency
    device_s: Latency
    waited_s: float
    """What the device waited for the program, in all: what the steps lasted beyond its own time. Only the sum is
    meaningful: a step is over when the program has looked, a little later than for the device."""

    @property
    def waited_share(self) -> float:
        """Of the time of these steps, 0 to 1."""
        total_s = self.duration_s.mean * self.num_steps
        return self.waited_s / total_s if total_s else 0.0


class StepTimesCollector:
    """Takes in steps, in bounded memory."""

    def __init__(self) -> None:
        self._of_phase: dict[str, tuple[Durations, Durations, Durations]] = {}

    def take(self, phase: str, duration_s: float, host_s: float | None, device_s: float | None) -> None:
        """Take in a step; one that does not tell its parts is left out."""
        if host_s is None or device_s is None:
            return
        durations, hosts, devices = self._columns(phase)
        durations.append(duration_s)
        hosts.append(host_s)
        devices.append(device_s)

    def absorb(self, other: StepTimesCollector) -> None:
        """Take in all steps of another run."""
        for phase, columns in other._of_phase.items():
            for own, more in zip(self._columns(phase), columns, strict=True):
                own.absorb(more)

    def _columns(self, phase: str) -> tuple[Durations, Durations, Durations]:
        of_phase = self._of_phase.get(phase)
        if of_phase is None:
            of_phase = self._of_phase[phase] = Durations(), Durations(), Durations()
        return of_phase

    def result(self) -> dict[str, PhaseTimes]:
        """Phase -> its times; no phase that had no such step."""
        return {phase: _sum_up(*of_phase) for phase, of_phase in self._of_phase.items()}


def _sum_up(durations: Durations, hosts: Durations, devices: Durations) -> PhaseTimes:
    waited_s = durations.total_s - devices.total_s
    return PhaseTimes(
        num_steps=durations.count,
        duration_s=_summarize(durations),
        host_s=_summarize(hosts),
        device_s=_summarize(devices),
        waited_s=waited_s if waited_s > _SMALLEST_SHARE * durations.total_s else 0.0,
    )


def _summarize(values: Durations) -> Latency:
    latency = values.summarize()
    assert latency is not None, "a phase without a step is none"
    return latency
