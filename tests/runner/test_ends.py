"""A generation that is interrupted, fails or is killed leaves nothing behind but a trace of what it did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.llm.conftest import model_path
from tests.runner.ends import HOWS, assert_nothing_left, assert_told, run_to_its_end, shared_memory

__all__ = ["model_path"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


@pytest.mark.parametrize("how", HOWS)
def test_on_a_cpu(how: str, model_path: Path, tmp_path: Path) -> None:
    shared_before = shared_memory()
    ended = run_to_its_end(model_path, "cpu", tmp_path / "trace.jsonl", how)
    assert_told(ended, how)
    assert ended.trace.header.backend == "cpu"
    assert_nothing_left(ended, shared_before)
