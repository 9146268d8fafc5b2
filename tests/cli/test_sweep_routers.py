"""``nanovllm sweep --routers``: one load behind several routers, on growing numbers of replicas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    """Of all cells: requests with one of three prefixes, on small pools."""
    path = tmp_path / "load.jsonl"
    lines = (
        {"id": i, "prompt_len": 80, "prefix": "abc"[i % 3], "prefix_len": 64, "max_tokens": 3, "arrival": i / 10}
        for i in range(12)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    chosen = (f"workload={path}", "kvcache_block_size=16", "num_kvcache_blocks=50", "model=qwen3-0.6b")
    return [word for setting in chosen for word in ("--set", setting)]


def test_routers_are_compared_over_replicas(settings: list[str], tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "routers.png"
    words = ("--vary", "replicas=1,2,4", "--vary", "router=round_robin,prefix_aware", "--jobs", 1, "--routers", path)
    outcome = run("sweep", *settings, *words, "--json")
    assert outcome.code == 0
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    found = {(row["router"], row["replicas"]): row["hit_tokens"] for row in rows}
    assert found["round_robin", 1] == found["prefix_aware", 1] == found["prefix_aware", 4] == 9 * 64
    assert found["round_robin", 4] == 0, "requests of a prefix never meet where 4 and 3 have nothing in common"
    assert [row["load_imbalance"] for row in rows if row["replicas"] == 1] == [1, 1]
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("vary", ["replicas=1,2", "router=round_robin,least_loaded"])
def test_both_must_vary(vary: str, settings: list[str], tmp_path: Path, run: RunCommand) -> None:
    outcome = run("sweep", *settings, "--vary", vary, "--routers", tmp_path / "routers.png")
    problem = "routers are drawn over replicas: let router and replicas vary, and nothing else"
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"error: {problem}\n")
