"""What was measured holds for what it was measured with: card, type of numbers, engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nanovllm.config import Config
from nanovllm.errors import ConfigError, CostTableError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import TraceStarted
from sim import SimulationResult, simulate
from sim.calibration import Calibration, calibration_file, read_calibration, write_calibration
from sim.chosen_cost_model import choose_cost_model
from sim.cost_models import CostModel, Roofline, Table
from sim.cost_models.latency_tables import read_latency_tables
from sim.hardware import GPU, GPUS
from sim.memory import num_kv_blocks_that_fit
from tests.sim.comparison_files import example_calibration
from tests.sim.latency_files import write_tables
from tests.sim.runs import requests

LOAD = requests((20, 3, 0))
QWEN, LLAMA = ModelSpec.preset("qwen3-0.6b"), ModelSpec.preset("llama-3.1-8b")
CONFIG = Config(kvcache_block_size=32, max_num_batched_tokens=2048, max_num_seqs=64)


def calibration_of(**facts: str | float | bool) -> Calibration:
    return msgspec.structs.replace(example_calibration(), facts=facts)


def table_of(directory: Path, device_name: str, dtype: str = "bfloat16") -> Table:
    tables = read_latency_tables(write_tables(directory))
    return Table(tables=msgspec.structs.replace(tables, gpu=device_name, dtype=dtype), num_layers=32)


def header_of(result: SimulationResult) -> TraceStarted:
    header = result.events[0]
    assert isinstance(header, TraceStarted)
    return header


def pool_of(result: SimulationResult) -> int:
    num_blocks: int = header_of(result).config["num_blocks"]
    return num_blocks


def fitted(**facts: str | float | bool) -> CostModel:
    return calibration_of(**facts).cost_model("qwen3-0.6b")


# ---- the card ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GPUS)
def test_the_pool_is_that_of_the_measured_card_and_the_trace_names_it(name: str, tmp_path: Path) -> None:
    card = GPUS[name]
    for model, cost_model in ((QWEN, fitted(device=card.device_name)), (LLAMA, table_of(tmp_path, card.device_name))):
        for gpu in (None, name, card):
            result = simulate(CONFIG, LOAD, gpu=gpu, model=model, cost_model=cost_model)
            assert pool_of(result) == num_kv_blocks_that_fit(CONFIG, model, card)
            assert result.facts == header_of(result).facts
            assert result.facts["hardware"] == card.device_name


@pytest.mark.parametrize("measured", GPUS)
def test_another_card_is_refused(measured: str) -> None:
    cost_model = fitted(device=GPUS[measured].device_name)
    for other in GPUS:
        if other != measured:
            with pytest.raises(ConfigError, match=rf"^gpu='{other}' is not allowed: {measured}, as the times were me"):
                simulate(replace(CONFIG, num_kvcache_blocks=9), LOAD, gpu=other, model=QWEN, cost_model=cost_model)


@pytest.mark.parametrize("device_name", ["NVIDIA A10", "cpu"])
def test_of_a_card_that_is_not_known_the_pool_must_be_told(device_name: str) -> None:
    cost_model = fitted(device=device_name)
    allowed = f"how much memory {device_name} has, where the times were measured, is not known"
    with pytest.raises(ConfigError, match=f"^num_kvcache_blocks=-1 is not allowed: a number of blocks: {allowed}$"):
        simulate(CONFIG, LOAD, model=QWEN, cost_model=cost_model)
    result = simulate(replace(CONFIG, num_kvcache_blocks=9), LOAD, model=QWEN, cost_model=cost_model)
    assert (pool_of(result), result.facts["hardware"]) == (9, device_name)
    with pytest.raises(ConfigError, match=r"^gpu='h100' is not allowed: none, as the times were measured on "):
        simulate(CONFIG, LOAD, gpu="h100", model=QWEN, cost_model=cost_model)
    own = replace(GPUS["l4"], name="own", device_name=device_name)
    result = simulate(CONFIG, LOAD, gpu=own, model=QWEN, cost_model=cost_model)
    assert pool_of(result) == num_kv_blocks_that_fit(CONFIG, QWEN, GPUS["l4"])


def test_where_nobody_told_the_card_it_is_the_users_to_say() -> None:
    with pytest.raises(ConfigError, match="how much memory a card that nobody told has, where the times were measured"):
        simulate(CONFIG, LOAD, model=QWEN, cost_model=fitted())
    assert "hardware" not in simulate(replace(CONFIG, num_kvcache_blocks=9), LOAD, cost_model=fitted()).facts
    result = simulate(CONFIG, LOAD, gpu="l4", model=QWEN, cost_model=fitted())
    assert pool_of(result) == num_kv_blocks_that_fit(CONFIG, QWEN, GPUS["l4"])
    assert result.facts["hardware"] == "l4"


@pytest.mark.parametrize("gpu", ["l4", "a100-80gb"])
def test_a_roofline_knows_its_card_too(gpu: str) -> None:
    roofline = Roofline(model=QWEN, gpu=GPUS[gpu])
    result = simulate(CONFIG, LOAD, model=QWEN, cost_model=roofline)
    assert (pool_of(result), result.facts["hardware"]) == (num_kv_blocks_that_fit(CONFIG, QWEN, GPUS[gpu]), gpu)


@pytest.mark.parametrize(("measured", "asked"), [(1, 2), (2, 1), (2, 4)])
def test_times_of_another_number_of_cards_are_refused(measured: int, asked: int) -> None:
    cost_model = fitted(device="NVIDIA L4", tensor_parallel_size=measured)
    config = replace(CONFIG, tensor_parallel_size=measured)
    assert simulate(config, LOAD, cost_model=cost_model).metrics.num_completed == 1
    with pytest.raises(ConfigError, match=rf"^tensor_parallel_size={asked} is not allowed: {measured}, as when the"):
        simulate(replace(config, tensor_parallel_size=asked), LOAD, cost_model=cost_model)


# ---- the type of numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("measured", ["float32", "bfloat16", "float16"])
def test_the_pool_holds_numbers_of_the_measured_type_and_no_other(measured: str, tmp_path: Path) -> None:
    card: GPU = GPUS["h200"]
    models = {
        QWEN: fitted(device=card.device_name, dtype=measured),
        LLAMA: table_of(tmp_path, card.device_name, measured),
    }
    for model, cost_model in models.items():
        for chosen in ("auto", measured):
            result = simulate(replace(CONFIG, dtype=chosen), LOAD, model=model, cost_model=cost_model)
            assert pool_of(result) == num_kv_blocks_that_fit(CONFIG, replace(model, dtype=measured), card)
        for other in {"float32", "bfloat16", "float16"} - {measured}:
            with pytest.raises(ConfigError, match=f"^dtype='{other}' is not allowed: {measured}, as when the times"):
                simulate(replace(CONFIG, dtype=other), LOAD, model=model, cost_model=cost_model)


@pytest.mark.parametrize(("variant", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp8", None), ("", None)])
def test_the_type_of_latency_tables_is_told_by_their_variant(variant: str, dtype: str | None, tmp_path: Path) -> None:
    meta = write_tables(tmp_path) / "table_meta.yaml"
    if variant:
        meta.write_text(f"variant: {variant}\n{meta.read_text(encoding='utf-8')}", encoding="utf-8")
    assert read_latency_tables(tmp_path).dtype == dtype


# ---- the pool of a calibration -------------------------------------------------------------------------------


@pytest.mark.parametrize(("block_size", "num_blocks"), [(16, 500), (32, 250)])
@pytest.mark.parametrize("share", [0.8, 0.9, 0.2])
def test_a_calibrations_pool_is_that_of_its_share_of_the_memory(
    block_size: int, num_blocks: int, share: float, tmp_path: Path
) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, calibration_of(device="NVIDIA L4", gpu_memory_utilization=0.8))
    config = replace(CONFIG, kvcache_block_size=block_size, gpu_memory_utilization=share)
    chosen = choose_cost_model(config, table=None, calibration=path, default_model="")
    result = simulate(chosen.config, LOAD, model=chosen.model, cost_model=chosen.cost_model)
    assert pool_of(result) == (num_blocks if share == 0.8 else num_kv_blocks_that_fit(config, QWEN, GPUS["l4"]))


@pytest.mark.parametrize("name", ["tensor_parallel_size", "gpu_memory_utilization"])
def test_facts_that_are_counted_with_are_numbers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, calibration_of(**{name: 2}))
    path.write_text(path.read_text(encoding="utf-8").replace(f'"{name}": 2', f'"{name}": "two"'), encoding="utf-8")
    with pytest.raises(CostTableError, match=rf"card\.json: is no calibration .*facts\.{name} must be a number"):
        read_calibration(path)


def test_the_calibration_that_comes_along_tells_all_of_it() -> None:
    cost_model = read_calibration(calibration_file("h200-qwen3-0.6b")).cost_model("qwen3-0.6b")
    assert (cost_model.hardware, cost_model.dtype, cost_model.lookahead) == ("NVIDIA H200", "bfloat16", True)
