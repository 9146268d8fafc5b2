"""Set-up of the whole suite: how hard hypothesis looks, which tests need a GPU, and where kernels run."""

import ctypes
import os
import signal
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: a slow machine is no fault of the code. On CI, the same examples every time.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# A shell lets what it runs in the background ignore Ctrl-C: so would the tests that press it, and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_card() -> bool:
    """Whether NVIDIA's driver finds one: what torch would say, without the seconds that its import takes."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


# Triton reads it when it is first imported. Without a card, its kernels run in an interpreter on the CPU.
os.environ.setdefault("TRITON_INTERPRET", "0" if _has_card() else "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``gpu`` where there is none; torch is imported only if there are such tests."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and (reason := _why_no_gpu()):
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "needs torch"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver too old for this torch is no GPU either, not an error
        return None if torch.cuda.is_available() else "needs an NVIDIA GPU that torch can use"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The directory of a real model; skips where it can't be had."""
    from nanovllm.errors import ModelError
    from nanovllm.runner.model_directory import resolve_model

    try:
        return resolve_model("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))
