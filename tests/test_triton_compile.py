"""What the interpreter lets pass may not compile: all kernels are compiled for Hopper, on any Linux machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import INTERPRETED

KERNELS = {
    "choose_tile_kernel",
    "decode_kernel",
    "draw_tiles_kernel",
    "gemv_kernel",
    "plan_decode_kernel",
    "prefill_kernel",
    "prefix_kernel",
    "rms_norm_kernel",
    "rows_kernel",
    "silu_mul_kernel",
    "store_kernel",
    "take_rows_kernel",
}
SHARED_BYTES = 232_448


@pytest.mark.skipif(not INTERPRETED, reason="on a card all tests of kernels compile them")
def test_all_kernels_compile_for_hopper(tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_kernels.py")
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(script.parent.parent),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert {kernel["kernel"] for kernel in kernels} == KERNELS
    for kernel in kernels:
        assert kernel["shared_bytes"] <= SHARED_BYTES
        if kernel["kernel"] in ("prefix_kernel", "prefill_kernel"):
            assert kernel["uses_warp_groups"], "the fast path for 16-bit numbers is taken"
        if kernel["kernel"] == "rows_kernel" and kernel["uses_matrix_units"]:
            # What is left are its sums; factors that do not lie right are a hundred more, or 32 KB.
            assert kernel["num_shuffles"] < 64, "factors lie as the matrix units take them"
            assert kernel["shared_bytes"] <= 16384, "likewise"
        if kernel["kernel"] in ("decode_kernel", "gemv_kernel", "rows_kernel"):
            assert kernel["stack_bytes"] <= 128, "parameters fit the registers, or nearly"
