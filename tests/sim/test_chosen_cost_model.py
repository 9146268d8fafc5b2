"""Which cost model a user's files come to, and what does not fit them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from nanovllm.config import Config
from nanovllm.errors import ConfigError, CostTableError, ModelError
from nanovllm.model_spec import ModelSpec
from sim.calibration import write_calibration
from sim.chosen_cost_model import ChosenCostModel, choose_cost_model
from sim.cost_models import Fitted, Table
from tests.sim.comparison_files import example_calibration
from tests.sim.latency_files import write_tables


def test_a_calibration_fills_in_model_and_pool(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, example_calibration())
    for block_size, num_blocks in ((16, 500), (32, 250), (48, 166), (1, 8000), (9000, 1)):
        config = Config(kvcache_block_size=block_size)
        chosen = choose_cost_model(config, table=None, calibration=path, default_model="llama-3.1-8b")
        assert isinstance(chosen.cost_model, Fitted)
        assert (chosen.config.model, chosen.config.num_kvcache_blocks) == ("qwen3-0.6b", num_blocks)


def test_the_default_is_the_roofline_of_the_default_model() -> None:
    chosen = choose_cost_model(Config(), table=None, calibration=None, default_model="llama-3.1-8b")
    assert (chosen.config.model, chosen.cost_model) == ("llama-3.1-8b", None)


@pytest.mark.parametrize(("measured", "asked"), [(1, 2), (2, 1), (2, 4)])
def test_times_of_another_number_of_cards_are_refused(measured: int, asked: int, tmp_path: Path) -> None:
    path, facts = tmp_path / "card.json", {"tensor_parallel_size": measured}
    write_calibration(path, msgspec.structs.replace(example_calibration(), facts=facts))
    same = Config(tensor_parallel_size=measured)
    assert choose_cost_model(same, table=None, calibration=path, default_model="").config.model == "qwen3-0.6b"
    with pytest.raises(ConfigError, match=rf"^tensor_parallel_size={asked} is not allowed: {measured}, as when"):
        choose_cost_model(Config(tensor_parallel_size=asked), table=None, calibration=path, default_model="")


SHAPE = ModelSpec.preset("qwen3-0.6b")


def write_model(directory: Path, **changes: object) -> str:
    """A directory with the config of qwen3-0.6b, but for ``changes``."""
    config: dict[str, object] = {
        "architectures": [SHAPE.architecture],
        "num_hidden_layers": SHAPE.num_layers,
        "hidden_size": SHAPE.hidden_size,
        "intermediate_size": SHAPE.intermediate_size,
        "num_attention_heads": SHAPE.num_heads,
        "num_key_value_heads": SHAPE.num_kv_heads,
        "head_dim": SHAPE.head_dim,
        "vocab_size": SHAPE.vocab_size,
        "max_position_embeddings": SHAPE.max_position_embeddings,
        "rms_norm_eps": SHAPE.rms_norm_eps,
        "rope_theta": SHAPE.rope.theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
    return str(directory)


def choose(calibration: Path, model: str = "") -> ChosenCostModel:
    config = Config(kvcache_block_size=16, model=model)
    return choose_cost_model(config, table=None, calibration=calibration, default_model="llama-3.1-8b")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_hidden_layers": 2}, "num_layers=28; here it is 2"),
        ({"hidden_size": 64}, "hidden_size=1024; here it is 64"),
        ({"num_key_value_heads": 16}, "num_kv_heads=8; here it is 16"),
        ({"vocab_size": 32000}, "vocab_size=151936; here it is 32000"),
        ({"attention_bias": True}, "qkv_bias=False; here it is True"),
    ],
)
@pytest.mark.parametrize("shape", [None, SHAPE])
def test_a_model_of_other_sizes_is_refused_whatever_its_name(
    tmp_path: Path, shape: ModelSpec | None, changes: dict[str, object], problem: str
) -> None:
    path, model = tmp_path / "card.json", write_model(tmp_path / "models" / "qwen3-0.6b", **changes)
    write_calibration(path, msgspec.structs.replace(example_calibration(), shape=shape))
    with pytest.raises(ConfigError, match=rf"^model=.* the calibration is one of qwen3-0.6b, with {problem}$"):
        choose(path, model)


@pytest.mark.parametrize("shape", [None, SHAPE])
def test_a_model_of_the_same_sizes_will_do_whatever_its_name(tmp_path: Path, shape: ModelSpec | None) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, msgspec.structs.replace(example_calibration(), shape=shape))
    model = write_model(tmp_path / "tuned", max_position_embeddings=4096, rope_theta=1e4, torch_dtype="float16")
    chosen = choose(path, model)
    assert isinstance(chosen.cost_model, Fitted)
    assert (chosen.config.model, chosen.model.max_position_embeddings) == (model, 4096)


def test_a_calibration_brings_a_shape_that_nobody_else_knows(tmp_path: Path) -> None:
    path, shape = tmp_path / "card.json", replace(SHAPE, num_layers=3)
    write_calibration(path, msgspec.structs.replace(example_calibration("mine"), shape=shape))
    for model in ("", "mine", "somewhere/else/Mine"):
        chosen = choose(path, model)
        assert (chosen.config.model, chosen.model) == (model or "mine", shape)
    with pytest.raises(ConfigError, match=r"num_layers=3; here it is 28$"):
        choose(path, "qwen3-0.6b")
    write_calibration(path, example_calibration("mine"))
    with pytest.raises(ConfigError, match=r"^model='qwen3-0.6b' is not allowed: the calibration is one of mine$"):
        choose(path, "qwen3-0.6b")
    with pytest.raises(ModelError, match=r"^model 'mine' is not known"):
        choose(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_layers": 0}, "shape.num_layers must be 1 or more"),
        ({"num_kv_heads": 0}, "shape.num_kv_heads must be 1 or more"),
        ({"num_heads": 12}, "shape.num_heads must be a multiple of num_kv_heads"),
        ({"dtype": "int4"}, "shape.dtype must be one of "),
        ({"max_position_embeddings": -1}, "shape.max_position_embeddings must be 1 or more"),
        ({"head_dim": "wide"}, "Expected `int`, got `str` - at `$.shape.head_dim`"),
    ],
)
def test_an_impossible_shape_is_one_clear_line(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, msgspec.structs.replace(example_calibration(), shape=SHAPE))
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["shape"] |= change
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(CostTableError, match=re.escape(problem)):
        choose(path)


def test_tables_are_of_one_card(tmp_path: Path) -> None:
    write_tables(tmp_path)
    chosen = choose_cost_model(Config(), table=tmp_path, calibration=None, default_model="")
    assert isinstance(chosen.cost_model, Table)
    with pytest.raises(ConfigError, match=r"^tensor_parallel_size=2 is not allowed: 1, as when"):
        choose_cost_model(Config(tensor_parallel_size=2), table=tmp_path, calibration=None, default_model="")
