"""The law of comparisons: a simulation is predicted to the last digit by its own model, whatever it was made with."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import RequestAdded, RequestRejected
from nanovllm.trace.jsonl import write_trace
from sim import simulate
from sim.comparison import Comparison, compare, read_traced_run
from sim.cost_models import CostModel
from sim.cost_models.fitted import Fitted, RequestCoefficients
from sim.workload import WorkloadRequest
from tests.sim.closed_loads import closed_loads
from tests.sim.comparison_files import example_calibration
from tests.sim.test_lookahead import HostAndGpu
from tests.strategies import configs, workloads

MODEL = "qwen3-0.6b"
CALIBRATION = example_calibration()


def calibrated(request_s: float) -> CostModel:
    """With so many seconds for each request that is added."""
    request = RequestCoefficients(request_s=request_s, token_s=request_s / 8)
    return msgspec.structs.replace(CALIBRATION, request=request).cost_model(MODEL)


cost_models = st.sampled_from(
    [None, HostAndGpu(0.0, 0.5), HostAndGpu(1.0, 4.0), HostAndGpu(4.0, 1.0), calibrated(1e-5), calibrated(0.05)]
)
"""None: the roofline. Where host and card take whole seconds, arrivals and ends of steps fall together."""


@st.composite
def loads(draw: st.DrawFn) -> list[WorkloadRequest]:
    """By step (where some may be there from the start), behind each other, or in seconds: all at once, densely, or each
    when the one before is long over."""
    if (kind := draw(st.sampled_from(["step", "after", "seconds"]))) == "after":
        return draw(closed_loads())
    requests = draw(workloads())
    gaps = st.sampled_from([0.0, 0.0, 1e-4, 1.0, 5.0, 1000.0])
    arrivals_s = list(accumulate(draw(st.lists(gaps, min_size=len(requests), max_size=len(requests)))))
    early = {request.request_id for request in requests if request.arrival_step == 0 and draw(st.booleans())}
    return [
        WorkloadRequest(
            id=request.request_id,
            prompt=list(request.prompt_token_ids),
            max_tokens=request.sampling_params.max_tokens,
            ignore_eos=request.sampling_params.ignore_eos,
            priority=request.priority,
            arrival=arrival_s if kind == "seconds" else None,
            arrival_step=request.arrival_step if kind == "step" and request.request_id not in early else None,
        )
        for request, arrival_s in zip(requests, arrivals_s, strict=True)
    ]


def compare_with_itself(path: Path, cost_model: CostModel | None, **options: Any) -> Comparison:
    run, by_step = read_traced_run(path), read_traced_run(path, by_step=True)
    return compare(run, cost_model, by_step=by_step, **options)[0]


def errors_of(found: Comparison) -> list[float | None]:
    pairs = [*found.latencies.values(), *found.step_times.values()]
    means = [error for pair in pairs for error in (pair.error("mean"), pair.error("max"), pair.mean_absolute_error)]
    return [*means, found.throughput_error]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "run.jsonl"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    load=loads(),
    data=st.data(),
    cost_model=cost_models,
    gpu=st.sampled_from(["l4", "h100"]),
    vocab_size=st.sampled_from([128, 151_936]),
)
def test_a_simulation_is_predicted_by_its_own_model(
    path: Path,
    load: list[WorkloadRequest],
    data: st.DataObject,
    cost_model: CostModel | None,
    gpu: str,
    vocab_size: int,
) -> None:
    model = replace(ModelSpec.preset(MODEL), vocab_size=vocab_size)
    config, card = data.draw(configs()), None
    if not isinstance(cost_model, Fitted):  # which holds for the card, the type and the number of GPUs of its times
        sizes, types = st.sampled_from([1, 2, 4]), st.sampled_from(["auto", "float32"])
        card, config = gpu, replace(config, tensor_parallel_size=data.draw(sizes), dtype=data.draw(types))
    events = simulate(config, load, gpu=card, cost_model=cost_model, model=model).events
    assume(any(isinstance(event, RequestAdded) for event in events))
    # Who waits for a refused one comes in the moment of its refusal, at which the engine has looked already.
    assume(not any(isinstance(event, RequestRejected) for event in events) or not any(item.after for item in load))
    write_trace(events, path)
    found = compare_with_itself(path, cost_model, model=model, gpu=card)
    assert found.first_difference is None
    assert found.num_unpaired == 0
    assert errors_of(found) == [pytest.approx(0, abs=1e-9)] * len(errors_of(found))
