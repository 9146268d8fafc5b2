"""Fits, on calibrations that were measured on a card, and on what a stopwatch may say."""

from __future__ import annotations

import pytest

from nanovllm.engine.batch import ScheduledBatch
from sim.calibration import measured_calibrations, read_calibration
from sim.calibration.fit import fit_device, fit_host
from sim.calibration.measure import MeasuredStep
from sim.cost_models.shape import KINDS, StepShape
from tests.sim.runs import decode_of


@pytest.mark.parametrize("name", measured_calibrations())
def test_what_was_measured_is_fitted_as_it_stands_there(name: str) -> None:
    found = read_calibration(name)
    block_size = found.block_size if found.reads_shared_blocks_once else None
    fitted, errors = fit_device(found.steps, found.sizes, block_size)
    for step in found.steps:
        expected = found.cost_model(found.model).time_of(step.shape).device_s
        assert fitted.time_of(step.shape).device_s == pytest.approx(expected, rel=1e-6)
    for kind in KINDS:
        assert errors[kind].mean == pytest.approx(found.errors[kind].mean, rel=1e-3)
        assert errors[kind].mean < 0.04


@pytest.mark.parametrize("name", measured_calibrations())
def test_whole_steps_are_predicted_without_bias(name: str) -> None:
    found = read_calibration(name)
    model, host = found.cost_model(found.model), fit_host(found.steps)
    for kind in KINDS:
        of_kind = [step for step in found.steps if step.shape.kind == kind]
        errors = [
            (model.time_of(step.shape).device_s + host[kind].of_step(step.shape)) / (step.device_s + step.host_s) - 1
            for step in of_kind
        ]
        assert abs(sum(errors) / len(errors)) < 0.01
        assert found.host[kind].step_s > host[kind].step_s  # the engine's part comes on top


def test_a_step_that_seems_to_take_the_program_no_time_does_not_outweigh_the_others() -> None:
    shapes = [StepShape.of(ScheduledBatch(decode_of(*[[1, 2]] * number), False)) for number in range(1, 60)]
    steps = [MeasuredStep(shape, 1e-3, 1e-4 + shape.num_sequences * 1e-6) for shape in shapes]
    steps += [step._replace(shape=step.shape._replace(chunk_tokens=9)) for step in steps]
    steps += [step._replace(shape=step.shape._replace(chunk_tokens=9, num_decodes=0)) for step in steps[:59]]
    with_zero = [steps[0], steps[30]._replace(host_s=0.0), *steps[1:]]
    expected, found = fit_host(steps)["decode"], fit_host(with_zero)["decode"]
    for shape in shapes:
        assert found.of_step(shape) == pytest.approx(expected.of_step(shape), rel=0.05)
