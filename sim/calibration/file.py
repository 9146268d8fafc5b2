"""A calibration in a file: one small JSON object."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from nanovllm.checks import is_number
from nanovllm.config import Config
from nanovllm.errors import ConfigError, CostTableError
from nanovllm.limited_reading import read_whole
from nanovllm.model_config import DTYPE_BYTES
from nanovllm.model_spec import PRESETS, ModelSpec
from nanovllm.trace.files.packed import written_whole
from sim.calibration.measure import MeasuredStep
from sim.cost_models.fitted import Coefficients, Fitted, HostCoefficients, RequestCoefficients, Sizes
from sim.cost_models.misfit import Misfit
from sim.cost_models.shape import KINDS, largest_shapes

SCHEMA: Literal[2] = 2
_SIZES = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
_PARTS = ("qk_norm", "qkv_bias", "output_bias", "mlp_bias")
"""What of a model the time of a step depends on, beside its sizes and the type of its numbers."""
_MEASURED = Path(__file__).with_name("measured")


class FitError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the fitted time on the device is from the measured one, as shares of it, on steps that were held out."""

    num_fitted: int
    num_held_out: int
    mean: float
    """Of the absolute errors."""
    p90: float
    worst: float
    bias: float
    """The mean error with its sign."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a backend's steps take, and of which backend that is true."""

    kind: Literal["nanovllm calibration"] = "nanovllm calibration"
    schema: Literal[2] = SCHEMA
    model: Annotated[str, msgspec.Meta(min_length=1)]
    """Its name, as ``nanovllm models`` lists it, or the last part of its path."""
    shape: ModelSpec | None = None
    """None if nobody told; see ``spec``."""
    backend: str
    facts: dict[str, str | int | float | bool]
    """What the backend tells of itself (card, type, versions, implementation of the attention ...), and with which
    options it was measured."""
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    num_blocks: Annotated[int, msgspec.Meta(ge=1)]
    """Of the KV pool that was there."""
    reads_shared_blocks_once: bool
    sizes: Sizes
    """To what it pads steps."""
    device: dict[str, Coefficients]
    """By kind of step; see ``sim.cost_models.shape.KINDS``."""
    misfit: Misfit | None
    host: dict[str, HostCoefficients]
    request: RequestCoefficients
    errors: dict[str, FitError]
    steps: list[MeasuredStep]
    """All that was measured."""

    def __post_init__(self) -> None:
        for name in ("device", "host", "errors"):
            if sorted(getattr(self, name)) != sorted(KINDS):
                raise ValueError(f"{name} must have {', '.join(KINDS)}")
        for name in ("tensor_parallel_size", "gpu_memory_utilization"):
            if not is_number(self.facts.get(name, 1)):
                raise ValueError(f"facts.{name} must be a number")
        if self.shape is not None:
            _check_shape(self.shape)

    @property
    def num_gpus(self) -> int:
        """How many cards computed each step."""
        return int(self.facts.get("tensor_parallel_size", 1))

    @property
    def gpu_memory_utilization(self) -> float:
        """The share of the card's memory for which ``num_blocks`` is the pool."""
        return float(self.facts.get("gpu_memory_utilization", Config.gpu_memory_utilization))

    @property
    def spec(self) -> ModelSpec | None:
        """The shape of the model; None if it is not told, and its name is not known."""
        return self.shape or PRESETS.get(self.model)

    def cost_model(self, model: str, spec: ModelSpec | None = None) -> Fitted:
        """The cost model for ``model``, of the shape ``spec``. Raises ``ConfigError`` if a model of other sizes was
        measured, or, where one of the two shapes is not known, one of another name."""
        if spec is not None and self.spec is not None:
            self._check_sizes(model, spec, self.spec)
        elif short_name(model) != short_name(self.model):
            raise ConfigError("model", model, f"the calibration is one of {self.model}")
        block_size = self.block_size if self.reads_shared_blocks_once else None
        dtype = str(self.facts.get("dtype"))
        return Fitted(
            device=self.device,
            host=self.host,
            request=self.request,
            sizes=self.sizes,
            misfit=self.misfit,
            block_size=block_size,
            hardware=str(self.facts["device"]) if "device" in self.facts else None,
            num_gpus=self.num_gpus,
            dtype=dtype if dtype in DTYPE_BYTES else None,
            lookahead=bool(self.facts.get("lookahead", False)),
            largest=largest_shapes(step.shape for step in self.steps),
        )

    def _check_sizes(self, model: str, spec: ModelSpec, measured: ModelSpec) -> None:
        for name in (*_SIZES, *_PARTS):
            size, measured_size = getattr(spec, name), getattr(measured, name)
            if size != measured_size:
                told = f"the calibration is one of {self.model}, with {name}={measured_size}; here it is {size}"
                raise ConfigError("model", model, told)


def _check_shape(shape: ModelSpec) -> None:
    for name in ("max_position_embeddings", *_SIZES):
        if getattr(shape, name) < 1:
            raise ValueError(f"shape.{name} must be 1 or more")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError("shape.num_heads must be a multiple of num_kv_heads")
    if shape.dtype not in DTYPE_BYTES:
        raise ValueError(f"shape.dtype must be one of {', '.join(DTYPE_BYTES)}")


def short_name(model: str) -> str:
    """The last part of a path or Hub name, in lower case."""
    return model.rstrip("/").rpartition("/")[2].lower()


def measured_calibrations() -> list[str]:
    """Names of the calibrations that come with this package, each of one card and model."""
    return sorted(path.stem for path in _MEASURED.glob("*.json"))


def calibration_file(path: str | Path) -> Path:
    """The file that a path or one of ``measured_calibrations`` names."""
    return _MEASURED / f"{path}.json" if str(path) in measured_calibrations() else Path(path)


def read_calibration(path: str | Path) -> Calibration:
    """Read a file, or one of ``measured_calibrations`` by its name. Raises ``CostTableError`` in one line for one that
    is missing, empty, foreign or impossible."""
    path = calibration_file(path)
    try:
        data = read_whole(path).removeprefix(BOM_UTF8)  # some editors put one
    except FileNotFoundError:
        names = ", ".join(measured_calibrations())
        raise CostTableError(path, f"no such file; calibrations that need none: {names}") from None
    except OSError as error:
        raise CostTableError.unreadable(path, error) from None
    if not data.strip():
        raise CostTableError(path, "is empty: a calibration that `nanovllm calibrate` wrote is needed")
    try:
        calibration = msgspec.json.decode(data, type=Calibration)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CostTableError(path, f"is no calibration of schema {SCHEMA} ({error})") from None
    return calibration


def write_calibration(path: str | Path, calibration: Calibration) -> None:
    """Write a file, whole or not at all. Raises ``CostTableError`` if that is not possible."""
    try:
        with written_whole(path) as file:
            file.write(_text_of(calibration))
    except OSError as error:
        raise CostTableError.unwritable(path, error) from error


def _text_of(calibration: Calibration) -> bytes:
    """What people look at, over many lines; then each measured step in one."""
    without_steps = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(calibration, steps=[])), indent=2)
    steps = b",\n    ".join(map(msgspec.json.encode, calibration.steps))
    head = without_steps.removesuffix(b"[]\n}")
    assert head != without_steps, "the steps are the last field"
    return head + b"[\n    " + steps + b"\n  ]\n}\n"
