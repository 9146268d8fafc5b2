"""Leading blocks that several sequences share cost what they cost, whatever the size of a block."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.batch import MixedBatch, ScheduledBatch
from nanovllm.engine.sequence import Sequence
from nanovllm.model_spec import ModelSpec
from sim import simulate
from sim.calibration import read_calibration
from sim.cost_models import CostModel, PooledCostModel, Roofline, StepTime
from sim.cost_models.shape import StepShape
from sim.hardware import GPUS
from sim.workload import WorkloadRequest
from tests.sim.comparison_files import example_calibration
from tests.sim.runs import decode_of

EXAMPLE = example_calibration().cost_model("qwen3-0.6b")
MODELS: dict[str, CostModel] = {
    "example": EXAMPLE,
    "h200": read_calibration("h200-qwen3-0.6b").cost_model("qwen3-0.6b"),
    "roofline": Roofline(model=ModelSpec.preset("qwen3-0.6b"), gpu=GPUS["h200"]),
}


def with_one_prefix(num_requests: int, prefix_len: int, own_len: int = 5) -> list[WorkloadRequest]:
    """The first one has computed the prefix when the others come."""
    return [
        WorkloadRequest(
            id=i,
            prompt_len=prefix_len + own_len,
            prefix="p",
            prefix_len=prefix_len,
            max_tokens=9,
            arrival=float(i > 0),
            ignore_eos=True,
        )
        for i in range(num_requests)
    ]


@pytest.mark.parametrize("policy", ["prefill_first", "mixed"])
def test_times_do_not_depend_on_the_size_of_a_block(policy: str) -> None:
    def time_spent(block_size: int, cost_model: CostModel = EXAMPLE) -> StepTime:
        config = Config(policy=policy, kvcache_block_size=block_size, num_kvcache_blocks=1000)
        load = with_one_prefix(6, prefix_len=256, own_len=20)
        return simulate(config, load, model="qwen3-0.6b", cost_model=cost_model, record=False).time_spent

    times = [msgspec.structs.astuple(time_spent(block_size)) for block_size in (16, 32, 64, 128, 256)]
    assert all(time == pytest.approx(times[0]) for time in times)
    without = time_spent(16, replace(EXAMPLE, block_size=None))
    assert time_spent(16).kv_traffic_s < 0.9 * without.kv_traffic_s


@dataclass(frozen=True)
class Watched:
    """A cost model whose answers are kept."""

    model: CostModel
    answers: list[StepTime] = field(default_factory=list)

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        self.answers.append(self.model.step_time(batch))
        return self.answers[-1]

    def for_block_size(self, block_size: int) -> Watched:
        model = self.model
        return Watched(model.for_block_size(block_size) if isinstance(model, PooledCostModel) else model, self.answers)


@pytest.mark.parametrize("name", MODELS)
@given(
    block_size=st.sampled_from([1, 3, 16, 256]),
    policy=st.sampled_from(["prefill_first", "mixed"]),
    prefix_len=st.integers(1, 300),
    num_requests=st.integers(2, 5),
    budget=st.integers(8, 600),
)
def test_no_part_of_a_step_is_negative(
    name: str, block_size: int, policy: str, prefix_len: int, num_requests: int, budget: int
) -> None:
    config = Config(
        policy=policy, kvcache_block_size=block_size, num_kvcache_blocks=2000, max_num_batched_tokens=budget
    )
    watched = Watched(MODELS[name])
    simulate(config, with_one_prefix(num_requests, prefix_len), model="qwen3-0.6b", cost_model=watched, record=False)
    assert min(part for time in watched.answers for part in msgspec.structs.astuple(time)) >= 0


def test_beside_a_chunk_each_sequence_reads_its_own() -> None:
    decodes = decode_of([1, 2], [1, 2])
    assert StepShape.of(ScheduledBatch(decodes, False), 4).shared_kv_tokens == 8
    assert StepShape.of(ScheduledBatch(decodes, False)).shared_kv_tokens == 0
    chunk = Sequence([1] * 6)
    chunk.num_scheduled_tokens = 6
    assert StepShape.of(MixedBatch([*decodes, chunk], True), 4).shared_kv_tokens == 0
