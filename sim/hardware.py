"""The GPUs one can simulate: what their makers promise, and how much of it programs reach.

Sizes are the bytes that ``nvidia-smi`` shows. The sizes on datasheets are rounder: "80 GB" stands for 79.65 GiB on an
H100. Rates are those of the datasheets, dense (datasheets often print the doubled number for sparse matrices) and
with 32-bit accumulation, links in one direction. Each entry names its source.

In float32, CUDA cores compute the products: neither torch, unless told otherwise, nor the kernels of this project round
what they multiply to TF32, which tensor cores would take.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.errors import ConfigError

_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class GPU:
    """A card, as far as the time of a step depends on it.

    The two shares are assumptions, measured on the H200 and taken for the others as well: copying on the card moves
    4.27 TB/s of 4.8, and large bf16 matrix products run at 708 TFLOP/s of 989 (torch 2.11, CUDA 13.0). Products in
    float32 are taken to reach the same share.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    """Between the card's memory and its chip."""
    flops_per_s: float
    """Matrix products in bfloat16 or float16, by tensor cores."""
    float32_flops_per_s: float
    """Matrix products in float32, by CUDA cores."""
    link_bytes_per_s: float
    """To the other cards of a tensor-parallel group: NVLink, or PCI Express where there is none."""
    source: str
    bandwidth_share: float = 4.27 / 4.8
    flops_share: float = 708 / 989
    device_name: str = ""
    """What CUDA calls it, and so does a file of times that were measured on it."""

    @property
    def achievable_bandwidth_bytes_per_s(self) -> float:
        """The memory bandwidth that programs reach."""
        return self.bandwidth_bytes_per_s * self.bandwidth_share

    def achievable_flops_per_s(self, dtype: str) -> float:
        """The arithmetic that matrix products in ``dtype`` (as ``ModelSpec`` has it) reach."""
        return (self.float32_flops_per_s if dtype == "float32" else self.flops_per_s) * self.flops_share

    def is_called(self, name: str) -> bool:
        """Whether ``name`` stands for this card: its own name or CUDA's; upper case is the same as lower case."""
        return bool(name) and name.lower() in (self.name.lower(), self.device_name.lower())


GPUS: dict[str, GPU] = {
    gpu.name: gpu
    for gpu in (
        GPU(
            name="b200",
            device_name="NVIDIA B200",
            memory_bytes=183_359 * _MIB,
            bandwidth_bytes_per_s=8.0e12,
            flops_per_s=2.25e15,
            float32_flops_per_s=75e12,
            link_bytes_per_s=900e9,
            source="NVIDIA HGX B200 datasheet, per GPU",
        ),
        GPU(
            name="h200",
            device_name="NVIDIA H200",
            memory_bytes=143_771 * _MIB,
            bandwidth_bytes_per_s=4.8e12,
            flops_per_s=989e12,
            float32_flops_per_s=67e12,
            link_bytes_per_s=450e9,
            source="NVIDIA H200 Tensor Core GPU datasheet, SXM",
        ),
        GPU(
            name="h100",
            device_name="NVIDIA H100 80GB HBM3",
            memory_bytes=81_559 * _MIB,
            bandwidth_bytes_per_s=3.35e12,
            flops_per_s=989e12,
            float32_flops_per_s=67e12,
            link_bytes_per_s=450e9,
            source="NVIDIA H100 Tensor Core GPU datasheet, SXM5",
        ),
        GPU(
            name="a100-80gb",
            device_name="NVIDIA A100-SXM4-80GB",
            memory_bytes=81_920 * _MIB,
            bandwidth_bytes_per_s=2.039e12,
            flops_per_s=312e12,
            float32_flops_per_s=19.5e12,
            link_bytes_per_s=300e9,
            source="NVIDIA A100 Tensor Core GPU datasheet, 80 GB SXM4",
        ),
        GPU(
            name="l40s",
            device_name="NVIDIA L40S",
            memory_bytes=46_068 * _MIB,
            bandwidth_bytes_per_s=864e9,
            flops_per_s=362e12,
            float32_flops_per_s=91.6e12,
            link_bytes_per_s=32e9,
            source="NVIDIA L40S datasheet; PCI Express 4.0 x16",
        ),
        GPU(
            name="l4",
            device_name="NVIDIA L4",
            memory_bytes=23_034 * _MIB,
            bandwidth_bytes_per_s=300e9,
            flops_per_s=121e12,
            float32_flops_per_s=30.3e12,
            link_bytes_per_s=32e9,
            source="NVIDIA L4 datasheet; PCI Express 4.0 x16",
        ),
        GPU(
            name="rtx-pro-6000",
            device_name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
            memory_bytes=97_887 * _MIB,
            bandwidth_bytes_per_s=1.597e12,
            flops_per_s=500e12,
            float32_flops_per_s=120e12,
            link_bytes_per_s=64e9,
            # Reading the head 1.53 TB/s, the widest matrix product 417 TFLOP/s: LLMServingSim 2.0's tables of it.
            bandwidth_share=1.53 / 1.597,
            flops_share=417 / 500,
            source="NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet (an eighth of 4 PFLOP/s sparse FP4)",
        ),
        GPU(
            name="rtx-4090",
            device_name="NVIDIA GeForce RTX 4090",
            memory_bytes=24_564 * _MIB,
            bandwidth_bytes_per_s=1.008e12,
            flops_per_s=165.2e12,
            float32_flops_per_s=82.6e12,
            link_bytes_per_s=32e9,
            source="NVIDIA Ada GPU architecture whitepaper, appendix A; PCI Express 4.0 x16",
        ),
    )
}
"""Cards by name."""


def find_gpu(name: str) -> GPU:
    """The card called ``name``; upper case is the same as lower case. Raises ``ConfigError`` listing all."""
    try:
        return GPUS[name.lower()]
    except KeyError:
        raise ConfigError("gpu", name, f"one of {', '.join(GPUS)}") from None


def find_measured_gpu(device_name: str) -> GPU | None:
    """The card that a file of measured times calls ``device_name``; None if none of ``GPUS`` is called so."""
    return next((gpu for gpu in GPUS.values() if gpu.is_called(device_name)), None)
