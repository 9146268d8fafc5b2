"""Coefficients from measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.calibration.engine_time import AddedRequest, EngineStep
from sim.calibration.file import FitError
from sim.calibration.measure import MeasuredStep
from sim.calibration.nnls import FloatArray, nonnegative_least_squares
from sim.cost_models.fitted import (
    CONTEXT_KNOTS,
    TOKEN_KNOTS,
    Coefficients,
    Fitted,
    HostCoefficients,
    RequestCoefficients,
    Sizes,
    between,
)
from sim.cost_models.misfit import MAX_FACTOR, Misfit
from sim.cost_models.shape import KINDS, StepShape

HELD_OUT_EVERY = 5
"""To tell the error, one of so many steps of each kind is not fitted to, but predicted."""
_GUESSES = (0.0, 1.0, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
"""Of how many times the KV that the longest sequence reads takes as long alone as all that are read: which steps it
bounds is found from there."""
_TYPICAL_WORK_S = np.array([1.0, 0.1, 0.05])
"""In proportion to each other, see ``_Features.work``: enough for a first guess."""
_MAX_TURNS = 30


def fit_device(
    steps: Sequence[MeasuredStep], sizes: Sizes, block_size: int | None
) -> tuple[Fitted, dict[str, FitError]]:
    """The times on the device, fitted to all steps; and by kind, the error on steps that were held out of such a fit.
    ``block_size``: see ``Fitted``."""
    is_held_out = set[int]()
    for kind in KINDS:
        of_kind = [index for index, step in enumerate(steps) if step.shape.kind == kind]
        assert len(of_kind) > HELD_OUT_EVERY // 2, "at least one step must be held out"
        is_held_out.update(of_kind[HELD_OUT_EVERY // 2 :: HELD_OUT_EVERY])
    rest = _fit([step for index, step in enumerate(steps) if index not in is_held_out], sizes, block_size)
    held_out = [steps[index] for index in sorted(is_held_out)]
    errors = {}
    for kind in KINDS:
        of_kind_out = [step for step in held_out if step.shape.kind == kind]
        num_fitted = sum(step.shape.kind == kind for step in steps) - len(of_kind_out)
        errors[kind] = _error(rest, of_kind_out, num_fitted)
    return _fit(steps, sizes, block_size), errors


def fit_host(steps: Sequence[MeasuredStep]) -> dict[str, HostCoefficients]:
    """By kind of step, what the backend's program takes for it."""
    found = {}
    for kind in KINDS:
        of_kind = [step for step in steps if step.shape.kind == kind]
        # A difference of two medians, which may be next to nothing: its error counts as a share of the whole step.
        whole_s = np.array([step.device_s + step.host_s for step in of_kind])
        times_s = np.array([step.host_s for step in of_kind])
        found[kind] = _host([step.shape for step in of_kind], times_s, whole_s)
    return found


def fit_engine(steps: Sequence[EngineStep]) -> HostCoefficients:
    """What the engine takes for a step of any kind."""
    times_s = np.array([step.engine_s for step in steps])
    return _host([step.shape for step in steps], times_s, times_s)


def fit_requests(requests: Sequence[AddedRequest]) -> RequestCoefficients:
    """What the engine takes to have a request in its queue."""
    features = np.array([[1.0, float(request.num_prompt_tokens)] for request in requests])
    times_s = np.array([request.engine_s for request in requests])
    request_s, token_s = _fit_shares(features, times_s, times_s).tolist()
    return RequestCoefficients(request_s=request_s, token_s=token_s)


# ---- the device --------------------------------------------------------------------------------------------------


def _fit(steps: Sequence[MeasuredStep], sizes: Sizes, block_size: int | None) -> Fitted:
    device = {kind: _fit_kind([step for step in steps if step.shape.kind == kind], sizes) for kind in KINDS}
    fitted = Fitted(device=device, host={}, sizes=sizes, block_size=block_size)
    own = [step for step in steps if step.shape.kind == "decode" and not step.shape.shared_kv_tokens]
    return Fitted(device=device, host={}, sizes=sizes, block_size=block_size, misfit=_misfit(fitted, own))


def _error(fitted: Fitted, held_out: Sequence[MeasuredStep], num_fitted: int) -> FitError:
    errors = np.array([fitted.time_of(step.shape).device_s / step.device_s - 1 for step in held_out])
    absolute = np.abs(errors)
    return FitError(
        num_fitted=num_fitted,
        num_held_out=len(held_out),
        mean=float(absolute.mean()),
        p90=float(np.quantile(absolute, 0.9)),
        worst=float(absolute.max()),
        bias=float(errors.mean()),
    )


class _Features(NamedTuple):
    """Of all steps: ``[num_steps, num_features]``."""

    always: FloatArray
    work: FloatArray
    """Of attention, all sequences together."""
    alone: FloatArray
    """Of attention, the longest sequence alone."""


def _features(shapes: Sequence[StepShape], sizes: Sizes) -> _Features:
    """In the order of the fields of ``Coefficients``."""
    always = [[1.0, *between(TOKEN_KNOTS, sizes.padded(shape)), shape.num_sequences] for shape in shapes]
    work = [
        [shape.decode_kv_tokens - shape.shared_kv_tokens, shape.shared_kv_tokens, shape.tile_pairs] for shape in shapes
    ]
    alone = [between(CONTEXT_KNOTS, shape.longest_context) for shape in shapes]
    return _Features(*(np.array(rows, dtype=np.float64) for rows in (always, work, alone)))


def _fit_kind(steps: Sequence[MeasuredStep], sizes: Sizes) -> Coefficients:
    """A fit for each guess of which steps are bound by their longest sequence, until the fit agrees with its guess; of
    all that were tried, the one with the least error."""
    features = _features([step.shape for step in steps], sizes)
    times_s = np.array([step.device_s for step in steps])
    best, least = None, np.inf
    for guess in _GUESSES:
        is_alone = guess * features.alone.sum(axis=1) > features.work @ _TYPICAL_WORK_S
        for _ in range(_MAX_TURNS):
            work = np.where(is_alone[:, None], 0.0, features.work)
            alone = np.where(is_alone[:, None], features.alone, 0.0)
            found = _fit_shares(np.hstack([features.always, work, alone]), times_s, times_s)
            always_s, work_s, alone_s = _parts(features, found)
            error = float(np.square((always_s + np.maximum(work_s, alone_s)) / times_s - 1).mean())
            if error < least:
                best, least = found, error
            was_alone, is_alone = is_alone, alone_s > work_s
            if (was_alone == is_alone).all():
                break
    assert best is not None, "every fit has an error"
    return _coefficients(best, max(sizes.padded(step.shape) for step in steps))


def _parts(features: _Features, found: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    first, second = features.always.shape[1], features.always.shape[1] + features.work.shape[1]
    return features.always @ found[:first], features.work @ found[first:second], features.alone @ found[second:]


def _coefficients(found: FloatArray, most_tokens: int) -> Coefficients:
    values = found.tolist()
    num_knots = len(TOKEN_KNOTS)
    step_s, token_s, rest = values[0], values[1 : num_knots + 1], values[num_knots + 1 :]
    for place in range(1, num_knots):
        if TOKEN_KNOTS[place] >= most_tokens:  # never measured: it goes on as before
            token_s[place] = token_s[place - 1]
    sequence_s, kv_token_s, shared_kv_token_s, chunk_pair_s, *context_s = rest
    return Coefficients(
        step_s=step_s,
        token_s=tuple(token_s),
        sequence_s=sequence_s,
        kv_token_s=kv_token_s,
        shared_kv_token_s=shared_kv_token_s,
        chunk_pair_s=chunk_pair_s,
        context_s=tuple(context_s),
    )


def _misfit(fitted: Fitted, steps: Sequence[MeasuredStep]) -> Misfit:
    """Of decode steps that share nothing: at each measured number of sequences and mean context, the mean factor."""
    cells: dict[tuple[int, int], list[float]] = {}
    for step in steps:
        factor = step.device_s / fitted.time_of(step.shape).device_s
        place = step.shape.num_sequences, round(step.shape.mean_decode)
        cells.setdefault(place, []).append(min(max(factor, 1 / MAX_FACTOR), MAX_FACTOR))
    sequences = sorted({num_sequences for num_sequences, _ in cells})
    contexts = sorted({context for _, context in cells})
    factors = []
    for num_sequences in sequences:
        known = [context for context in contexts if (num_sequences, context) in cells]
        means = [float(np.mean(cells[num_sequences, context])) for context in known]
        factors.append(tuple(np.interp(contexts, known, means).tolist()))
    return Misfit(sequences=tuple(sequences), contexts=tuple(contexts), factors=tuple(factors))


# ---- least squares -----------------------------------------------------------------------------------------------


def _host(shapes: Sequence[StepShape], times_s: FloatArray, whole_s: FloatArray) -> HostCoefficients:
    features = np.array([[1.0, float(shape.num_sequences), float(shape.num_tokens)] for shape in shapes])
    step_s, sequence_s, token_s = _fit_shares(features, times_s, whole_s).tolist()
    return HostCoefficients(step_s=step_s, sequence_s=sequence_s, token_s=token_s)


def _fit_shares(features: FloatArray, times_s: FloatArray, whole_s: FloatArray) -> FloatArray:
    """Least squares of the errors as shares of ``whole_s``: a short step counts as much as a long one."""
    weights = 1 / np.maximum(whole_s, 1e-9)
    return nonnegative_least_squares(features * weights[:, None], times_s * weights)
