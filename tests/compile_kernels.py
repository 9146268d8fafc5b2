"""Compile all kernels for NVIDIA's Hopper, without a card: a script, since Triton decides once whether to interpret.

Prints a line of JSON for each kernel: its name, the shared memory of a program in bytes, whether Hopper's products of
warp groups are used, or those of warps, how often threads give each other numbers, and the bytes of each thread that
found no register.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from nanovllm.attention.triton.decode_launch import DecodeAttention
from nanovllm.attention.triton.heads import HeadShape, HeadTransform
from nanovllm.attention.triton.prefill_launch import attend_chunks, plan_prefill, store
from nanovllm.attention.triton.prefix_launch import PrefixAttention
from nanovllm.layers.triton.elementwise import rms_norm, silu_mul, take_rows
from nanovllm.layers.triton.linear import fused_linear, fused_linear_before_norm
from nanovllm.layers.triton.sampling import draw

HOPPER = GPUTarget("cuda", 90, 32)
DTYPE = torch.bfloat16


class AbsentCard:
    """Stands in for the driver: says what to compile for."""

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def stack_bytes(program: bytes) -> int:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(program)
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return max(int(size) for size in re.findall(r"STACK:(\d+)", usage))


def compile_instead_of_launching() -> None:
    launch = JITFunction.run

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        line = {
            "kernel": self.fn.__name__,
            "shared_bytes": kernel.metadata.shared,
            "uses_warp_groups": "warp_group_dot " in kernel.asm["ttgir"],
            "uses_matrix_units": "mma.sync" in kernel.asm["ptx"],
            "num_shuffles": kernel.asm["ptx"].count("shfl.sync"),
            "stack_bytes": stack_bytes(kernel.asm["cubin"]),
        }
        sys.stdout.write(json.dumps(line) + "\n")

    JITFunction.run = run
    triton.runtime.driver.set_active(AbsentCard())


def launch_attention(shape: HeadShape, block_size: int, num_seqs: int) -> None:
    def zeros(*sizes: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
        return torch.zeros(*sizes, dtype=dtype)

    device = torch.device("cpu")
    angles = zeros(64, shape.head_dim // 2, dtype=torch.float32)
    transform = HeadTransform(angles, angles, zeros(shape.head_dim), zeros(shape.head_dim))
    pool = [zeros(2, block_size, shape.num_kv_heads, shape.head_dim) for _ in range(2)]
    context_lens, tables = zeros(num_seqs, dtype=torch.int32), zeros(num_seqs, 3, dtype=torch.int32)
    qkv = zeros(num_seqs, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim)
    query, out = zeros(2, num_seqs, shape.num_heads, shape.head_dim)

    decode = DecodeAttention(shape, max_seqs=num_seqs, dtype=DTYPE, device=device)
    prefix = PrefixAttention(shape, max_seqs=num_seqs, block_size=block_size, dtype=DTYPE, device=device)
    prefix.attend(qkv, *pool, transform, context_lens, tables, pdl=True)
    for step in (prefix.step, None):
        plan = decode.plan(context_lens, tables, prefix=step)
        decode.attend(plan, qkv, *pool, transform, out, pdl=True)
    store(qkv, context_lens, context_lens, *pool, query, transform, shape)
    chunks = plan_prefill([num_seqs], [num_seqs], tables, shape, dtype=DTYPE)
    attend_chunks(chunks, query, *pool, out, shape)


def launch_layers() -> None:
    x, weight, norm = (torch.zeros(*sizes, dtype=DTYPE) for sizes in ((16, 1024), (256, 1024), (1024,)))
    for rows in (x[:1], x):
        fused_linear(rows, weight, norm=norm, is_gated=True, residual=rows[:, :128].contiguous(), pdl=True)
    wide = torch.zeros(1024, 1024, dtype=DTYPE)
    _, weighted = fused_linear_before_norm(x, wide, None, x, norm, pdl=True)
    fused_linear(weighted, weight, is_gated=True, pdl=True)
    rms_norm(x, norm, 1e-6)
    silu_mul(x)
    take_rows(x, torch.zeros(2, dtype=torch.int32))
    keys = torch.zeros(2, 16, dtype=torch.int32)
    draw(x, torch.zeros(16), keys, keys[0], keys[1], advance=True, pdl=True)


def launch_products(in_size: int, out_size: int, dtype: torch.dtype) -> None:
    """Of a decoder with one row and several, as wide as they come."""

    for num_rows in (1, 16):
        x, weight = torch.zeros(num_rows, in_size, dtype=dtype), torch.empty(2 * out_size, in_size, dtype=dtype)
        fused_linear(x, weight, pdl=True)
        fused_linear(x, weight, is_gated=True, pdl=True)


if __name__ == "__main__":
    compile_instead_of_launching()
    for num_seqs in (1, 2, 256):
        launch_attention(HeadShape(16, 8, 128), block_size=256, num_seqs=num_seqs)
    for in_size, out_size in ((1024, 3072), (14336, 2048), (8192, 28672)):
        launch_products(in_size, out_size, DTYPE)
    launch_products(1024, 3072, torch.float32)
    launch_attention(HeadShape(14, 2, 64), block_size=16, num_seqs=8)
    launch_layers()
