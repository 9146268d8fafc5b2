"""What the runner tells beside tokens: times, facts, profiles. (On a card: tests/gpu/test_step_times.py.)"""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nanovllm import __version__
from nanovllm.engine.backend import ObservedBackend
from nanovllm.engine.engine import Engine
from nanovllm.errors import TraceError
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.profiling import profile_steps
from nanovllm.trace.events import StepFinished, StepStarted, TraceStarted
from tests.runner.test_model_runner import CONFIG, SPEC, requests, run


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(CONFIG, spec=SPEC)


def test_host_and_device_make_up_a_step_on_a_cpu(runner: ModelRunner) -> None:
    assert isinstance(runner, ObservedBackend)
    _, events = run(CONFIG, runner, requests(3))
    starts = [event for event in events if isinstance(event, StepStarted)]
    ends = [event for event in events if isinstance(event, StepFinished)]
    assert len(starts) == len(ends) == 16
    for start, end in zip(starts, ends, strict=True):
        assert end.host is not None
        assert end.device is not None
        assert end.host > 0
        assert end.device > 0
        assert end.host + end.device <= end.time - start.time


def test_the_header_tells_what_ran(runner: ModelRunner) -> None:
    headers = [run(CONFIG, runner, requests(1))[1][0] for _ in range(2)]
    assert headers[0] == headers[1]
    [header, _] = headers
    assert isinstance(header, TraceStarted)
    assert header.facts == {
        "device": "cpu",
        "dtype": "float32",
        "attention": "torch",
        "attention_reason": "the others need an NVIDIA GPU",
        "cuda_graphs": False,
        "tensor_parallel_size": 1,
        "nanovllm": __version__,
        "torch": str(torch.__version__),
        "lookahead": False,
    }


# ---- profiles ----------------------------------------------------------------------------------------------------


def profiled_run(runner: ModelRunner, path: Path) -> list[str]:
    """The names of the steps in the profile of a run."""
    config = replace(CONFIG, max_num_batched_tokens=8)
    engine = Engine(config, runner)
    with profile_steps(runner, lambda: engine.step_index, path):
        for _ in engine.run(requests(2)):
            pass
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(content)["traceEvents"]
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    assert any(event["name"].startswith("aten::") for event in events)
    return [event["name"] for event in sorted(ranges, key=lambda event: event["ts"])]


@pytest.mark.parametrize("name", ["profile.json", "profile.json.gz"])
def test_a_profile_has_a_range_for_each_step(runner: ModelRunner, tmp_path: Path, name: str) -> None:
    names = profiled_run(runner, tmp_path / name)
    assert names[:3] == [
        "step 0 prefill 1 seqs 3 tokens",
        "step 1 prefill 1 seqs 7 tokens",
        "step 2 decode 2 seqs 2 tokens",
    ]
    assert [int(told.split()[1]) for told in names] == list(range(17))


def test_a_run_that_breaks_off_leaves_its_profile(runner: ModelRunner, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    engine = Engine(CONFIG, runner)
    with suppress(KeyboardInterrupt), profile_steps(runner, lambda: engine.step_index, path):
        for _ in engine.run(requests(1)):
            raise KeyboardInterrupt
    assert "step 0 prefill 1 seqs 3 tokens" in path.read_text()
    assert run(CONFIG, runner, requests(1))[0]


def test_a_profile_that_cannot_be_written_is_refused_at_once(runner: ModelRunner, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "profile.json"
    with pytest.raises(TraceError, match=r"profile\.json: cannot be written: No such file or directory$"):
        profiled_run(runner, path)
