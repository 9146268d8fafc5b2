"""From settings to cells: every combination once, keys that last, and mistakes told before anything runs."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import ConfigError, UserError
from sim.calibration import calibration_file
from sim.sweeps import Sweep, run_cell
from sim.sweeps.table import columns_of
from tests.sim.sweeps.small import SETTINGS, small_sweep

AXES: dict[str, list[Any]] = {
    "policy": ["prefill_first", "mixed", "priority"],
    "max_num_seqs": [1, 2, 64],
    "gpu": ["h200", "l4"],
    "rate": [1.0, 2.5],
    "lookahead": [True, False],
    "calibration": [None, "card.json"],
}


@given(
    st.dictionaries(st.sampled_from(sorted(AXES)), st.integers(1, 3)).flatmap(
        lambda axes: st.tuples(st.just(axes), st.permutations(sorted(axes)), st.permutations(sorted(SETTINGS)))
    )
)
def test_cells_are_the_product_and_keys_know_no_order(drawn: tuple[dict[str, int], list[str], list[str]]) -> None:
    sizes, order, order_of_settings = drawn
    vary = {name: AXES[name][:size] for name, size in sizes.items()}
    fixed = {name: value for name, value in SETTINGS.items() if name not in vary}
    cells = Sweep(settings=fixed, vary=vary).cells()
    assert len(cells) == math.prod(len(values) for values in vary.values())
    shuffled = Sweep(
        settings={name: fixed[name] for name in order_of_settings if name in fixed},
        vary={name: vary[name][::-1] for name in order},
    ).cells()
    by_key = {cell.key: dict(cell.settings) for cell in cells}
    assert len(by_key) == len(cells)
    assert {cell.key: dict(cell.settings) for cell in shuffled} == by_key


def test_the_last_setting_varies_fastest() -> None:
    cells = small_sweep().cells()
    assert [(cell.settings["policy"], cell.settings["max_num_seqs"]) for cell in cells] == [
        (policy, count) for policy in ("prefill_first", "mixed") for count in (2, 4, 8)
    ]


def test_settings_may_vary_together() -> None:
    sweep = Sweep(vary={"gpu+tensor_parallel_size": [("h200", 1), "l4+4"], "max-num-seqs": ["8"]})
    assert sweep.varied == ("gpu", "tensor_parallel_size", "max_num_seqs")
    assert [tuple(cell.settings.values()) for cell in sweep.cells()] == [("h200", 1, 8), ("l4", 4, 8)]


def test_words_and_spelled_out_defaults_make_no_other_key() -> None:
    (plain,) = Sweep(settings={"rate": 4}).cells()
    (spelled,) = Sweep(settings={"rate": "4.0", "max-num-seqs": "512", "gpu": "h200", "limit": "null"}).cells()
    assert plain.key == spelled.key
    assert plain.key != Sweep(settings={"rate": 4, "seed": 1}).cells()[0].key


def test_a_key_knows_what_files_hold_and_not_their_names(tmp_path: Path) -> None:
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(text)
    keys = {name: Sweep(settings={"workload": str(tmp_path / name)}).cells()[0].key for name in ("a", "b", "c", "d")}
    assert keys["a"] == keys["b"]
    assert len(set(keys.values())) == 3
    (tmp_path / "a").write_text("z")
    assert Sweep(settings={"workload": str(tmp_path / "a")}).cells()[0].key not in keys.values()


def test_a_key_knows_what_a_calibration_holds_that_is_named(tmp_path: Path) -> None:
    name, path = "h200-qwen3-0.6b", tmp_path / "copied.json"
    path.write_bytes(calibration_file(name).read_bytes())
    named, copied = (Sweep(settings={"calibration": str(each)}).cells()[0].key for each in (name, path))
    assert named == copied
    path.write_bytes(path.read_bytes() + b" ")
    assert Sweep(settings={"calibration": str(path)}).cells()[0].key != named


@pytest.mark.parametrize("setting", ["policy", "router"])
def test_a_key_knows_what_is_in_the_file_of_ones_own_class(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def key(name: str) -> str:
        importlib.invalidate_caches()
        return Sweep(settings={setting: name}).cells()[0].key

    keys = [key("written_later:A")]
    for text in ("A = 1", "A = 2"):
        (tmp_path / "written_later.py").write_text(text)
        keys += [key("written_later:A"), key("written_later:B")]
    assert len(set(keys)) == 5
    assert key("written_later:B") == keys[-1]
    assert "written_later" not in sys.modules


@pytest.mark.parametrize(
    ("settings", "vary", "part"),
    [
        ({"polcy": "mixed"}, {}, "there is no such setting; the settings are max_num_seqs,"),
        ({}, {"policy": ["mixed", "best"]}, "policy='best' is not allowed: one of prefill_first, mixed"),
        ({}, {"max_num_seqs": ["many"]}, "max_num_seqs='many' is not allowed: a whole number is needed"),
        ({}, {"max_num_seqs": [8, 0]}, "max_num_seqs=0 is not allowed"),
        ({}, {"lookahead": ["perhaps"]}, "true or false is needed"),
        ({"eos": "end"}, {}, "eos='end' is not allowed: a whole number is needed"),
        ({"rate": True}, {}, "rate=True is not allowed: a number is needed"),
        ({"gpu": "abacus"}, {"policy": ["mixed", "priority"]}, "gpu='abacus' is not allowed: one of b200"),
        ({"model": "gpt-9"}, {}, "model 'gpt-9' is not known"),
        ({"router": "best"}, {}, "router='best'"),
        ({"replicas": 0}, {}, "replicas=0"),
        ({"prompt_len": "long"}, {}, "prompt_len='long' is not allowed: one of fixed"),
        ({"arrivals": "poisson:2", "rate": 3}, {}, "arrivals='poisson:2' is not allowed: not together with rate"),
        ({"num_turns": 3}, {}, "num_turns='3' is not allowed: it is not for drawn requests"),
        ({"workload": "a", "num_sessions": 3}, {}, "num_sessions=3 is not allowed: not together with workload"),
        ({"workload": "b\udcff.jsonl"}, {}, "a text that UTF-8 can tell is needed"),
        ({}, {"calibration": ["\ud800"]}, "a text that UTF-8 can tell is needed"),
        ({"workload": "a", "end_s": 0}, {}, "end_s=0.0 is not allowed: a number of seconds above start_s=0.0"),
        ({"workload": "a", "trace_seed": -1}, {}, "trace_seed=-1 is not allowed"),
        ({"num_agents": 2, "mean_tool_s": -1}, {}, "mean_tool_s=-1.0 is not allowed: a number of seconds from 0"),
        ({"workload": "a", "num_requests": 3}, {}, "num_requests=3 is not allowed: it is not for requests from a file"),
        ({"workload": "a", "rate": 3, "rate_scale": 2.0}, {}, "rate_scale=2.0 is not allowed: not together with rate"),
        ({"load_duration_s": 3.0}, {}, "only together with rate"),
        ({"arrival_cv": 2}, {}, "arrival_cv=2.0 is not allowed: only together with rate"),
        ({"arrival_cv": math.nan, "num_sessions": 2}, {}, "arrival_cv=nan is not allowed: only together with rate"),
        ({"arrival_cv": 0, "rate": 2, "num_agents": 2}, {}, "arrival_cv=0.0 is not allowed: a number from 0.001"),
        ({"arrival_cv": 2, "arrivals": "poisson:2"}, {}, "arrivals='poisson:2' is not allowed: not together with"),
        ({"find_rate": 0.9}, {}, "a limit to meet is needed: slo_ttft"),
        ({"find_rate": 2, "slo_ttft": 1}, {}, "find_rate=2"),
        ({"slo_ttft": -1}, {}, "time_to_first_token_s=-1"),
        ({"gpu": "l4"}, {"gpu": ["h200"]}, "a setting may be there once"),
        ({"num_requests": 4, "num-requests": 5}, {}, "settings='num_requests' is not allowed: a setting may be there"),
        ({}, {"max-num-seqs": [4], "max_num_seqs": [5]}, "vary='max_num_seqs' is not allowed: a setting may be there"),
        ({}, {"gpu+rate": [("l4", 1)], "rate": [2]}, "vary='rate' is not allowed: a setting may be there once"),
        ({}, {name: [*range(1, 48)] for name in ("seed", "max_num_seqs", "limit")}, "103,823 cells are too many"),
        ({}, {"gpu": ["l4", "l4"]}, "it is given twice"),
        ({}, {"gpu": []}, "a list of one or more values is needed"),
        ({}, {"gpu": "l4"}, "a list of one or more values is needed"),
        ({}, {"gpu+rate": [("l4",)]}, "2 values are needed"),
        ({}, {"admit_by": ["chunk", "prompt"]}, "admit_by='chunk' is not allowed: only for policy mixed"),
    ],
)
def test_what_no_cell_can_have_is_refused_at_once(settings: dict[str, Any], vary: dict[str, Any], part: str) -> None:
    with pytest.raises(UserError) as caught:
        Sweep(settings=settings, vary=vary)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_cells_that_are_the_same_are_refused(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        Path(name).write_text("equal")
    with pytest.raises(ConfigError, match="2 cells come to the same settings"):
        Sweep(vary={"workload": names}).cells()


def test_a_setting_may_be_several_numbers() -> None:
    (cell,) = Sweep(settings={"eos": [1, 2]}).cells()
    assert cell.settings["eos"] == (1, 2)
    assert run_cell(cell)["eos"] == "(1, 2)"
    assert columns_of(["eos", "rate", "policy", "lookahead", "skip"])["eos"] is str
