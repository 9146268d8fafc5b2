"""Of every option that a simulating command shows: it changes what is simulated, or is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nanovllm.config import OPTIONS_OF_POLICIES, OPTIONS_OF_REAL_RUNS, Config
from nanovllm.trace.events import AnyEvent, Emit
from nanovllm.trace.recorder import tee
from sim.engine_setup import Setup
from tests.cli.conftest import Outcome, RunCommand
from tests.sim.latency_files import write_tables

CHANGES: dict[str, tuple[object, ...]] = {
    "max_num_seqs": (1,),
    "max_num_batched_tokens": (16,),
    "max_model_len": (44,),
    "kvcache_block_size": (32,),
    "num_kvcache_blocks": (6,),
    "enable_prefix_caching": ("--no-enable-prefix-caching",),
    "watermark_blocks": (3,),
    "policy": ("shortest_first",),
    "admit_by": ("chunk",),
    "max_prefill_tokens_per_request": (4,),
    "ageing": (9,),
    "eos": (77,),
    "lookahead": ("--lookahead", "--no-lookahead"),
    "seed": (5,),
    "model": ("qwen3-1.7b",),
    "dtype": ("float32",),
    "gpu_memory_utilization": (0.5,),
    "tensor_parallel_size": (2,),
    "gpu": ("l4", "h100"),
}
"""By option, other choices than that of the run to compare with; at least one of them must change something."""
POOL = {"gpu", "gpu_memory_utilization", "num_kvcache_blocks"}
"""What the size of the pool hangs on."""
COMMANDS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "simulate": (("simulate",), set()),
    "replicas": (("simulate", "--replicas", "2"), set()),
    "policies": (("policies",), {"policy"}.union(*OPTIONS_OF_POLICIES.values())),
    "reuse": (("workload", "reuse"), {"gpu_memory_utilization"}),
}
"""With the options of the engine that they do not show, beside those for real runs."""


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """Seven requests that want more than the tiny pool has; some share a prefix, one ends early."""
    path = tmp_path / "load.jsonl"
    lines = [
        {"id": i, "prompt_len": 40 - 5 * (i % 3), "prefix": "p", "prefix_len": 16, "max_tokens": 12, "priority": i}
        | ({"output_len": 5} if i == 2 else {})
        for i in range(7)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def cost_models(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    tables = tmp_path / "tables"
    tables.mkdir()
    meta = write_tables(tables) / "table_meta.yaml"
    card = "gpu: NVIDIA RTX PRO 6000 Blackwell Server Edition\nvariant: bf16"
    meta.write_text(meta.read_text(encoding="utf-8").replace("gpu: A card", card), encoding="utf-8")
    return {
        "roofline": (),
        "calibration": ("--calibration", "h200-qwen3-0.6b"),
        "table": ("--table", tables),
    }


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[AnyEvent]:
    """All events of the engines that are made from here on, whoever listens."""
    events: list[AnyEvent] = []
    make_engine = Setup.make_engine

    def overheard(setup: Setup, emit: Emit | None, *arguments: Any) -> Any:
        return make_engine(setup, events.append if emit is None else tee(emit, events.append), *arguments)

    monkeypatch.setattr(Setup, "make_engine", overheard)
    return events


@pytest.fixture
def observe(run: RunCommand, simulated: list[AnyEvent]) -> Callable[..., tuple[Outcome, list[bytes]]]:
    def observed(*words: object) -> tuple[Outcome, list[bytes]]:
        simulated.clear()
        outcome = run(*words, "--json")
        return outcome, list(map(msgspec.json.encode, simulated))

    return observed


@pytest.mark.parametrize("cost_model", ["roofline", "calibration", "table"])
@pytest.mark.parametrize("name", COMMANDS)
def test_it_changes_what_is_simulated_or_is_refused(
    name: str,
    cost_model: str,
    load: Path,
    cost_models: dict[str, tuple[object, ...]],
    observe: Callable[..., tuple[Outcome, list[bytes]]],
) -> None:
    command, hidden = COMMANDS[name]
    options = {field.name for field in dataclasses.fields(Config)} - OPTIONS_OF_REAL_RUNS - hidden
    for option in sorted(options | {"gpu"}):
        base = [*command, load, *cost_models[cost_model], *_options_beside(option, "policy" not in hidden)]
        plain, before = observe(*base)
        assert plain.code == 0, plain.err
        assert before
        does_something = False
        for choice in CHANGES[option]:
            words = [choice] if str(choice).startswith("--") else [f"--{option.replace('_', '-')}", choice]
            outcome, after = observe(*base, *words)
            is_refused = outcome.code == 2 and not after
            assert not is_refused or (outcome.err.startswith("error: ") and outcome.err.count("\n") == 1)
            does_something |= is_refused or after != before
        assert does_something, option


def _options_beside(option: str, has_policy: bool) -> list[object]:
    """So that ``option`` matters, and is not given twice."""
    words: list[object] = [] if option == "kvcache_block_size" else ["--kvcache-block-size", 16]
    if has_policy and option != "policy":
        words += ["--policy", "shortest_first" if option == "ageing" else "mixed"]
    return words if option in POOL else [*words, "--num-kvcache-blocks", 7]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("option", sorted(OPTIONS_OF_REAL_RUNS))
def test_what_is_for_real_runs_is_not_shown(name: str, option: str, load: Path, run: RunCommand) -> None:
    outcome = run(*COMMANDS[name][0], load, f"--{option.replace('_', '-')}")
    assert outcome.code == 2
    assert outcome.err.startswith("error: no such option: ")


def test_every_option_of_the_engine_is_tried() -> None:
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Config)} - OPTIONS_OF_REAL_RUNS | {"gpu"}
