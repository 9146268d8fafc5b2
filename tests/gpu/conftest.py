"""Set-up of what runs on a card: exact products, memory given back, and at the end how many tests took how long."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.models import SIZES, save_wide_model


@pytest.fixture(autouse=True, scope="session")
def _exact_products() -> Iterator[None]:
    """A product of float32 is one of float32, and not of their first 10 bits."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(autouse=True, scope="module")
def _memory_is_given_back() -> Iterator[None]:
    yield
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def wide_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory of each of ``tests.gpu.models.SIZES``, by name."""
    return {name: save_wide_model(name, tmp_path_factory.mktemp("models") / name) for name in SIZES}


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """Another one in each run; a failure shows it, and ``NANOVLLM_TEST_SEED`` repeats it."""
    seed = int(os.environ.get("NANOVLLM_TEST_SEED", secrets.randbits(16)))
    request.node.add_report_section("setup", "seed", f"NANOVLLM_TEST_SEED={seed}")
    return seed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many of the tests that need a card there were, and what they took."""
    counts, total_s = {}, 0.0
    for outcome, reports in terminalreporter.stats.items():
        own = [report for report in reports if isinstance(report, pytest.TestReport) and "gpu" in report.keywords]
        total_s += sum(report.duration for report in own)
        if own and outcome:  # the empty one is that of set-ups that went well
            counts[outcome] = len(own)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    terminalreporter.write_line(f"tests marked gpu: {told or 'none'}; {total_s:.1f} s, set-up included")
