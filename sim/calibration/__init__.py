"""From measured steps of a real backend to a cost model: plan, measure, fit, keep in a file."""

from sim.calibration.calibrate import calibrate
from sim.calibration.file import (
    Calibration,
    calibration_file,
    measured_calibrations,
    read_calibration,
    write_calibration,
)

__all__ = [
    "Calibration",
    "calibrate",
    "calibration_file",
    "measured_calibrations",
    "read_calibration",
    "write_calibration",
]
