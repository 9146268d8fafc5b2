"""The times of steps on a card, and a profile of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.model_spec import ModelSpec
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.profiling import profile_steps
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.check import check
from nanovllm.trace.events import AnyEvent, StepFinished, StepStarted, TraceStarted

pytestmark = pytest.mark.gpu

SPEC = replace(ModelSpec.preset("qwen3-0.6b"), num_layers=4)
CONFIG = Config(device="cuda", dtype="bfloat16", max_model_len=1024, num_kvcache_blocks=64, max_num_seqs=16)


@pytest.fixture(scope="module", params=["auto", "torch"])
def runner(request: pytest.FixtureRequest) -> Iterator[ModelRunner]:
    runner = ModelRunner(replace(CONFIG, attention=request.param), spec=SPEC)
    yield runner
    runner.close()


def requests() -> list[Request]:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    return [
        Request(request_id=number, prompt_token_ids=[number + 7 * i for i in range(300)], sampling_params=params)
        for number in range(12)
    ]


def run(runner: ModelRunner, config: Config) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for result in Engine(config, runner, emit=events.append).run(requests()):
        assert result.error is None
        assert result.device_s is not None
    assert check(events) == []
    return events


@pytest.mark.parametrize("lookahead", [True, False])
def test_the_parts_of_a_step_fit_its_time(runner: ModelRunner, lookahead: bool) -> None:
    config = replace(CONFIG, lookahead=lookahead)
    run(runner, config)  # kernels are compiled
    events = run(runner, config)
    starts = [event for event in events if isinstance(event, StepStarted)]
    ends = [event for event in events if isinstance(event, StepFinished)]
    for start, end in zip(starts, ends, strict=True):
        assert end.host is not None
        assert end.device is not None
        assert end.host > 0
        assert end.device > 0
        assert start.time <= end.time
    # The card computes one step at a time, and none before it is submitted. (Its clock ticks by half a microsecond.)
    assert sum(end.device or 0.0 for end in ends) <= ends[-1].time - starts[0].time + 1e-6 * len(ends)
    assert all(later.time >= earlier.time for earlier, later in pairwise(ends))


def test_the_header_tells_card_and_versions(runner: ModelRunner) -> None:
    header = run(runner, CONFIG)[0]
    assert isinstance(header, TraceStarted)
    assert header.facts == run(runner, CONFIG)[0].facts
    assert {"device", "dtype", "attention", "attention_reason", "cuda_graphs", "torch", "cuda"} <= header.facts.keys()
    assert header.facts["attention"] == runner.attention
    assert header.facts["cuda_graphs"] is (runner.attention != "torch")
    assert "NVIDIA" in header.facts["device"]


def test_a_profile_has_ranges_of_steps_and_kernels(runner: ModelRunner, tmp_path: Path) -> None:
    engine = Engine(CONFIG, runner)
    with profile_steps(runner, lambda: engine.step_index, tmp_path / "profile.json"):
        num_steps = sum(1 for _ in engine.run(requests()))
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    ranges = {event["name"] for event in events if event.get("cat") == "user_annotation"}
    assert sum(name.startswith("step ") for name in ranges) == num_steps
    assert any(event.get("cat") == "kernel" for event in events)
