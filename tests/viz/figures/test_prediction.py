"""A real run against its prediction."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nanovllm.errors import FileError
from nanovllm.trace.metrics.request_metrics import RequestMetrics
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import prediction, prediction_data, save


def rows(factor: float, count: int = 12, spread: float = 1.0) -> list[RequestMetrics]:
    return [
        RequestMetrics(
            request=index,
            outcome="completed",
            arrival_s=float(index),
            prompt_tokens=10,
            output_tokens=1 if index == 0 else 5,
            hit_tokens=0,
            recomputed_tokens=0,
            num_preemptions=0,
            queueing_s=None,
            time_to_first_token_s=factor * 0.1 * spread**index,
            time_per_output_token_s=None if index == 0 else factor * 0.02,
            end_to_end_s=factor * (1.0 + index),
        )
        for index in range(count)
    ]


def test_requests_are_paired_by_id() -> None:
    real, predicted = rows(1.0), rows(1.1)[::-1]
    predicted[0] = msgspec.structs.replace(predicted[0], outcome="aborted")
    pairs = prediction_data(real, predicted)
    assert pairs["End-to-end latency"] == [(1.0 + i, pytest.approx(1.1 * (1.0 + i))) for i in range(11)]
    assert len(pairs["Time per output token"]) == 10


@pytest.mark.parametrize("spread", [1.0, 1.5])
def test_the_mean_error_stands_in_each_panel(spread: float) -> None:
    figure = prediction(rows(1.0, spread=spread), rows(1.1, spread=spread))
    assert flaws(figure) == []
    notes = {"mean +10.0%, 12 requests", "mean +10.0%, 11 requests"}
    assert {"real (ms)", "predicted (ms)", "real (s)", "predicted (s)"} <= texts_of(figure)
    assert {*notes, "Time to first token", "Time per output token", "End-to-end latency"} <= texts_of(figure)


def test_there_is_no_mean_error_of_no_time() -> None:
    figure = prediction(rows(0.0), rows(1.0))
    assert {"12 requests", "11 requests"} <= texts_of(figure)


def test_nothing_in_common_is_said() -> None:
    figure = prediction(rows(1.0), [])
    assert "no request was completed in both runs" in texts_of(figure)


def test_the_same_figure_makes_the_same_file(tmp_path: Path) -> None:
    first, second = (
        save(prediction(rows(1.0), rows(0.9)), tmp_path / name).read_bytes() for name in ("a.svg", "b.svg")
    )
    assert first == second
    with pytest.raises(FileError, match=r"a.bmp: is no name for a picture"):
        save(prediction(rows(1.0), rows(0.9)), tmp_path / "a.bmp")
