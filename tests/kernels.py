"""What tests of Triton kernels share: where they run, and how near is near enough.

On a card they run on it, in all types; elsewhere in Triton's interpreter (``tests/conftest.py`` chooses it), which
computes bfloat16 products wrongly, so that type is left out there.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
triton = pytest.importorskip("triton", reason="needs Triton, which there is for Linux only")

INTERPRETED = bool(triton.knobs.runtime.interpret)
if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("there is a card, but this torch cannot use it", allow_module_level=True)

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
DTYPES = [torch.float32, torch.float16] if INTERPRETED else [torch.float32, torch.float16, torch.bfloat16]
_TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def generator(seed: int) -> torch.Generator:
    """Random numbers are drawn on the CPU, so that a seed means the same everywhere."""
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, dtype: torch.dtype, rng: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    """Normal random numbers of this type on the device."""
    return (torch.randn(*shape, generator=rng) * scale).to(dtype).to(DEVICE)


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """What a kernel must overwrite, or must not read."""
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


def assert_near(actual: torch.Tensor, expected: torch.Tensor, *, factor: float = 1.0) -> None:
    """All numbers are finite and as near to ``expected``, in float64, as the type of ``actual`` lets them be."""
    assert actual.shape == expected.shape
    assert actual.isfinite().all(), "a number is missing or computed from one that is not there"
    size = expected.abs().max().clamp(min=0.25)
    error = ((actual.double() - expected).abs().max() / size).item()
    assert error <= _TOLERANCE[actual.dtype] * factor, f"off by {error:.2e} of the largest number"
