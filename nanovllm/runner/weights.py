"""Loading a model's weights from safetensors files, one tensor at a time into its place.

A rank of a group reads what is its own and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nanovllm.errors import ModelError
from nanovllm.layers.linear import PackedLinear
from nanovllm.limited_reading import read_whole
from nanovllm.models.decoder import Decoder
from nanovllm.models.shard import cut_of

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"

# Tables that old checkpoints store although they follow from the config.
_DERIVED = re.compile(r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$")
_MAX_NAMES_SHOWN = 8


def checkpoint_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights under the names that a checkpoint gives them, without the prefix ``model.``.

    The parts of packed layers are views into the packed weight: filling them fills it.
    """
    tensors: dict[str, Tensor] = {}
    for module_name, module in model.named_modules():
        for kind, parameter in module.named_parameters(recurse=False):
            if isinstance(module, PackedLinear):
                parent = module_name.rpartition(".")[0]
                parts = module.parts(parameter.data)
                tensors |= {f"{parent}.{part}.{kind}": view for part, view in parts.items()}
            else:
                tensors[f"{module_name}.{kind}"] = parameter.data
    return tensors


class Place:
    """Where a tensor of a checkpoint goes, or the part of it that this rank holds."""

    def __init__(self, name: str, target: Tensor, model: Decoder) -> None:
        """``target``: the weight, or a view of it, as in ``checkpoint_tensors``."""
        self._target = target
        self._cut = cut_of(name, model.whole_spec, model.group)

    @property
    def whole_shape(self) -> list[int]:
        """Of the tensor in the checkpoint."""
        shape = list(self._target.shape)
        if self._cut is not None:
            shape[self._cut.dim] = self._cut.whole_len
        return shape

    @torch.no_grad()
    def fill(self, whole: Any) -> None:
        """``whole``: the tensor, or what gives parts of it by slices."""
        if self._cut is None:
            self._target.copy_(whole[:])
            return
        start, dim = 0, self._cut.dim
        for run in self._cut.runs:
            part = whole[run.start : run.stop] if dim == 0 else whole[:, run.start : run.stop]
            self._target.narrow(dim, start, len(run)).copy_(part)
            start += len(run)


def find_places(model: Decoder) -> dict[str, Place]:
    """The places of all weights, under the names of ``checkpoint_tensors``."""
    return {name: Place(name, target, model) for name, target in checkpoint_tensors(model).items()}


def load_weights(model: Decoder, directory: Path) -> None:
    """Fill every weight of ``model`` from the safetensors files in ``directory``, converting to its type.

    Raises ``ModelError`` listing what is missing, left over or of another shape; a model that it returns from is
    complete.
    """
    missing = find_places(model)
    has_head = "lm_head.weight" in missing
    surplus: list[str] = []
    for path in weight_files(directory):
        for name, tensor in _open_tensors(path):
            place = missing.pop(name.removeprefix("model."), None)
            if place is not None:
                _fill(place, tensor, f"{path}: {name}")
            elif not _is_redundant(name, has_head):
                surplus.append(name)
    if missing:
        raise ModelError(f"{directory}: weights are missing: {_shortened(sorted(missing))}")
    if surplus:
        raise ModelError(f"{directory}: weights that the model has no place for: {_shortened(sorted(surplus))}")


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model: the shards that its index names, or the single file. Raises ``ModelError``
    naming the file that is missing."""
    index_path = directory / INDEX_FILE
    if not index_path.exists():
        return [_existing(directory / SINGLE_FILE, f"(nor {INDEX_FILE}); only safetensors weights can be loaded")]
    try:
        weight_map = json.loads(read_whole(index_path).decode())["weight_map"]
        paths = [directory / name for name in sorted(set(weight_map.values()))]
    except OSError as error:
        raise ModelError(f"{index_path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index_path}: has no readable weight_map ({error!r})") from None
    return [_existing(path, f"but {INDEX_FILE} names it") for path in paths]


def _existing(path: Path, reason: str) -> Path:
    if not path.is_file():
        raise ModelError(f"{path}: does not exist {reason}")
    return path


def _open_tensors(path: Path) -> Iterator[tuple[str, Any]]:
    # Mapped into memory, not read: a tensor, or a part of it, costs memory only while it is copied.
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                yield name, file.get_slice(name)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read as safetensors ({error})") from None


def _fill(place: Place, tensor: Any, name: str) -> None:
    shape, expected = tensor.get_shape(), place.whole_shape
    if shape != expected:
        raise ModelError(f"{name} has shape {shape}, but config.json calls for {expected}")
    place.fill(tensor)


def _is_redundant(name: str, has_head: bool) -> bool:
    """Whether a checkpoint may hold this without a place for it: the head of a tied model is its embedding."""
    return bool(_DERIVED.search(name)) or (name == "lm_head.weight" and not has_head)


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + more
