"""``nanovllm bench`` on a CPU, with a load of a few tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanovllm.cli.main import main

pytest.importorskip("torch", reason="needs torch")

OPTIONS = ["--dummy-weights", "smollm2-135m", "--device", "cpu", "--num-kvcache-blocks", "4", "--repetitions", "1"]


@pytest.fixture
def load(tmp_path: Path) -> str:
    path = tmp_path / "load.jsonl"
    path.write_text('{"id": "a", "prompt_len": 9, "max_tokens": 3}\n{"id": "b", "prompt_len": 5, "max_tokens": 2}\n')
    return str(path)


def test_json_has_what_was_measured(load: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", load, *OPTIONS, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["num_prefill_steps"] == 1
    assert row["num_decode_steps"] == 2
    assert row["tokens_per_s"] == pytest.approx(5 / row["wall_s"])
    assert 0 < row["share_of_bound"] < 1


def test_an_unknown_load_is_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nosuch", *OPTIONS]) == 2
    assert capsys.readouterr().err.startswith("error: nosuch: ")
