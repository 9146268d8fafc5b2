"""Calibration: coefficients that were put in are found again, and a file says of which backend they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nanovllm.config import Config
from nanovllm.engine.backend import StepTimes
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import ConfigError, CostTableError, UserError
from nanovllm.trace.events import RequestAdded, StepStarted
from sim import simulate
from sim.calibration import Calibration, calibrate, read_calibration, write_calibration
from sim.calibration.plan import PlannedStep, plan_steps
from sim.cost_models.fitted import Coefficients, RequestCoefficients, Sizes
from sim.cost_models.shape import KINDS, StepShape
from sim.workload import WorkloadRequest
from tests.sim.runs import decode_of

CONFIG = Config(
    kvcache_block_size=16, num_kvcache_blocks=4096, max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=4096
)
SIZES = Sizes(decode=(1, 2, 4, 8, 16, 32, 64), chunks=(64, 128, 256, 512))
TRUE = Coefficients(
    step_s=1e-3,
    token_s=(*(2e-5,) * 5, *(1e-5,) * 8, *(2e-5,) * 11),
    sequence_s=3e-5,
    kv_token_s=1e-8,
    shared_kv_token_s=1e-9,
    chunk_pair_s=1e-9,
    context_s=(1e-7, 1e-7, 5e-8),
)


# ---- the plan ------------------------------------------------------------------------------------------------


def test_all_planned_steps_fit() -> None:
    plan = plan_steps(CONFIG, reads_shared_blocks_once=True)
    assert len(set(plan)) == len(plan) > 100
    for step in plan:
        assert len(step.decodes) + len(step.chunks) <= 64
        assert not step.chunks or len(step.decodes) + sum(tokens for _, tokens in step.chunks) <= 2048
        assert step.num_blocks(16) <= 4096
        assert all(step.num_shared_tokens < cached for cached in step.decodes)
    assert not any(step.num_shared_tokens for step in plan_steps(CONFIG, reads_shared_blocks_once=False))


def test_a_step_takes_shared_blocks_once() -> None:
    assert PlannedStep((64 + 1, 64 + 1), ((0, 17),), 64).num_blocks(16) == 4 + 2 * 1 + 2


# ---- a backend whose times are known -------------------------------------------------------------------------


class KnownBackend:
    """Takes as long as ``TRUE`` says."""

    name = "known"
    facts: Mapping[str, Any] = {"device": "a card"}

    def __init__(self, num_kv_blocks: int = CONFIG.num_kvcache_blocks) -> None:
        self.num_kv_blocks = num_kv_blocks
        self.step_times = StepTimes(0.0, 0.0)

    def execute(self, batch: ScheduledBatch) -> list[int]:
        blocks = [block for seq in batch.sequences for block in seq.block_table]
        assert max(blocks) < self.num_kv_blocks
        for seq in batch.sequences:
            assert len(seq.block_table) * 16 >= seq.num_cached_tokens + seq.num_scheduled_tokens
        shape = StepShape.of(batch, 16)
        device_s = TRUE.step_time(shape, SIZES.padded(shape)).total_s
        self.step_times = StepTimes(0.0, device_s)
        return [7] * len(batch.sequences)

    def close(self) -> None:
        """Nothing is held."""


class Stopwatch:
    """Makes every step take a millisecond longer than its device was busy."""

    def __init__(self, backend: KnownBackend) -> None:
        self.backend = backend
        self.now_s = 0.0
        self.is_running = False

    def __call__(self) -> float:
        if self.is_running:
            self.now_s += self.backend.step_times.device_s + 1e-3
        self.is_running = not self.is_running
        return self.now_s


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    backend = KnownBackend()
    return calibrate(
        backend,
        CONFIG,
        model="models/Tiny",
        vocab_size=100,
        reads_shared_blocks_once=True,
        sizes=SIZES,
        clock=Stopwatch(backend),
    )


def test_the_times_that_were_put_in_are_found_again(calibration: Calibration) -> None:
    assert calibration.device["mixed"].chunk_pair_s == pytest.approx(TRUE.chunk_pair_s, rel=1e-3)
    assert calibration.device["decode"].kv_token_s == pytest.approx(TRUE.kv_token_s, rel=1e-3)
    assert calibration.device["decode"].shared_kv_token_s == pytest.approx(TRUE.shared_kv_token_s, rel=1e-3)
    assert calibration.device["prefill"].sequence_s == pytest.approx(TRUE.sequence_s, rel=1e-3)
    for kind in KINDS:
        assert calibration.errors[kind].worst < 1e-3
        assert calibration.errors[kind].num_held_out >= calibration.errors[kind].num_fitted / 5
        assert calibration.host[kind].step_s >= 1e-3 * 0.99


def test_the_model_predicts_device_and_host(calibration: Calibration) -> None:
    seqs = decode_of([1, 2], [3, 4])
    time = calibration.cost_model("tiny").step_time(ScheduledBatch(seqs, False))
    expected = TRUE.step_s + 2 * (TRUE.token_s[0] + TRUE.sequence_s) + 16 * TRUE.kv_token_s
    assert time.device_s == pytest.approx(expected, rel=1e-3)
    assert time.host_s > 0


def test_another_model_is_refused(calibration: Calibration) -> None:
    with pytest.raises(ConfigError, match=r"^model='qwen3-0.6b' is not allowed: the calibration is one of tiny$"):
        calibration.cost_model("qwen3-0.6b")


@pytest.mark.parametrize(
    ("kind", "num_blocks", "change"),
    [
        ("decode", 4, {}),
        ("mixed", 4096, {"max_num_seqs": 1}),
        ("prefill", 4096, {"max_num_batched_tokens": 1}),
        ("decode", 4096, {"max_model_len": 1}),
    ],
)
def test_options_that_leave_too_little_to_measure_are_refused(kind: str, num_blocks: int, change: Any) -> None:
    config = replace(CONFIG, **change)
    with pytest.raises(UserError, match=rf"^too few {kind} steps can be measured with num_kvcache_") as caught:
        calibrate(KnownBackend(num_blocks), config, model="tiny", vocab_size=100)
    for name, value in {"num_kvcache_blocks": num_blocks, **change}.items():
        assert f"{name}={value}" in str(caught.value)


def test_a_request_takes_time_before_the_step(calibration: Calibration) -> None:
    model = replace(calibration.cost_model("tiny"), request=RequestCoefficients(request_s=1.0, token_s=0.1))
    load = [WorkloadRequest(id=number, prompt_len=10, max_tokens=2) for number in range(3)]
    result = simulate(CONFIG, load, cost_model=model)
    starts = [event.time for event in result.events if isinstance(event, StepStarted)]
    added = [event.time for event in result.events if isinstance(event, RequestAdded)]
    assert added == [0.0, 2.0, 4.0]
    assert starts[0] == 6.0


# ---- the file ------------------------------------------------------------------------------------------------


def test_a_file_gives_back_what_was_written(calibration: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, calibration)
    assert read_calibration(path) == calibration
    first = path.read_bytes()
    write_calibration(path, calibration)
    assert path.read_bytes() == first


def _fields(calibration: Calibration) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(calibration)
    return fields


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty: a calibration that `nanovllm calibrate` wrote is needed"),
        (b" \n", "is empty"),
        (b"not json", "is no calibration of schema 2"),
        (b"\xff\xff", "is no calibration of schema 2"),
        (b"[]", "is no calibration of schema 2"),
        (b'{"type": "trace_started"}', "is no calibration of schema 2"),
        (b"[" * 100_000, "is no calibration of schema 2"),
    ],
)
def test_a_foreign_file_is_one_clear_line(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(content)
    with pytest.raises(CostTableError, match=problem) as caught:
        read_calibration(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 1}, r"`\$.schema`"),
        ({"kind": "something"}, r"`\$.kind`"),
        ({"block_size": "16"}, r"`\$.block_size`"),
        ({"block_size": 0}, r"`\$.block_size`"),
        ({"num_blocks": 0}, r"`\$.num_blocks`"),
        ({"model": ""}, r"`\$.model`"),
        ({"colour": "red"}, "colour"),
        ({"host": {}}, "host must have decode, prefill, mixed"),
        ({"sizes": {"decode": [2, 1]}}, "sizes.decode must be positive and in ascending order"),
        ({"misfit": {"sequences": [2, 1], "contexts": [1], "factors": [[1.0], [1.0]]}}, "sequences must be in asc"),
        ({"misfit": {"sequences": [1], "contexts": [1, 2], "factors": [[1.0]]}}, "factors must have a row for each"),
        ({"misfit": {"sequences": [1], "contexts": [1], "factors": [[0.0]]}}, "factors must be between"),
        ({"request": {"request_s": -1.0}}, "negative"),
        ({"steps": [[1, 2]]}, r"`\$.steps"),
    ],
)
def test_an_impossible_file_is_one_clear_line(
    calibration: Calibration, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode({**_fields(calibration), **change}))
    with pytest.raises(CostTableError, match=problem):
        read_calibration(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("step_s", -1e-3), ("step_s", 1e300), ("token_s", [1e-3]), ("token_s", [0.0] * 23 + [1e300])],
)
def test_an_impossible_coefficient_is_one_clear_line(
    calibration: Calibration, tmp_path: Path, name: str, value: object
) -> None:
    fields = _fields(calibration)
    fields["device"]["decode"][name] = value
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(fields))
    with pytest.raises(
        CostTableError, match=r"negative|1e\+300, no number from 0 to|token_s has 1 values, 24 are needed"
    ):
        read_calibration(path)


def test_files_that_cannot_be_read_or_written_are_one_clear_line(calibration: Calibration, tmp_path: Path) -> None:
    with pytest.raises(CostTableError, match=r"nowhere.json: no such file; .* need none: h200-qwen3-0.6b"):
        read_calibration(tmp_path / "nowhere.json")
    with pytest.raises(CostTableError, match=r"cannot be written: No such file"):
        write_calibration(tmp_path / "nowhere" / "card.json", calibration)


# ---- a real backend ------------------------------------------------------------------------------------------


def test_a_real_backend_is_calibrated_in_no_time() -> None:
    pytest.importorskip("torch", reason="the real backend needs torch")
    from nanovllm.model_spec import ModelSpec
    from nanovllm.runner.model_runner import ModelRunner

    shape = {"num_layers": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "num_kv_heads": 1}
    spec = replace(ModelSpec.preset("qwen3-0.6b"), **shape, head_dim=16, vocab_size=128)
    config = replace(CONFIG, num_kvcache_blocks=80, max_num_seqs=8, max_num_batched_tokens=300, num_threads=1)
    config = replace(config, device="cpu", max_model_len=1024)
    runner = ModelRunner(config, spec=spec)
    try:
        found = calibrate(runner, config, model="tiny", vocab_size=spec.vocab_size, shape=runner.spec)
    finally:
        runner.close()
    assert found.facts["attention"] == "torch"
    assert found.spec == spec
    assert found.device["decode"].step_s > 0
    assert set(found.errors) == set(KINDS)
