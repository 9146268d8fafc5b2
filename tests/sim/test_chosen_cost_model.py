"""Which cost model a user's files come to, and what does not fit them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from sim.calibration import write_calibration
from sim.chosen_cost_model import choose_cost_model
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


def test_tables_are_of_one_card(tmp_path: Path) -> None:
    write_tables(tmp_path)
    chosen = choose_cost_model(Config(), table=tmp_path, calibration=None, default_model="")
    assert isinstance(chosen.cost_model, Table)
    with pytest.raises(ConfigError, match=r"^tensor_parallel_size=2 is not allowed: 1, as when"):
        choose_cost_model(Config(tensor_parallel_size=2), table=tmp_path, calibration=None, default_model="")
