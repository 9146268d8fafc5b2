"""Loading a model's weights from safetensors files, one tensor at a time into its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nanovllm.errors import ModelError
from nanovllm.layers.linear import PackedLinear

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


def load_weights(model: nn.Module, directory: Path) -> None:
    """Fill every weight of ``model`` from the safetensors files in ``directory``, converting to its type.

    Raises ``ModelError`` listing what is missing, left over or of another shape; a model that it returns from is
    complete.
    """
    missing = checkpoint_tensors(model)
    has_head = "lm_head.weight" in missing
    surplus: list[str] = []
    for path in weight_files(directory):
        for name, tensor in _read_tensors(path):
            target = missing.pop(name.removeprefix("model."), None)
            if target is not None:
                _fill(target, tensor, f"{path}: {name}")
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
        weight_map = json.loads(index_path.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index_path}: has no readable weight_map ({error!r})") from None
    return [_existing(directory / name, f"but {INDEX_FILE} names it") for name in names]


def _existing(path: Path, reason: str) -> Path:
    if not path.is_file():
        raise ModelError(f"{path}: does not exist {reason}")
    return path


def _read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    # Mapped into memory, not read: a tensor costs memory only while it is copied.
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read as safetensors ({error})") from None


@torch.no_grad()
def _fill(target: Tensor, tensor: Tensor, name: str) -> None:
    if target.shape != tensor.shape:
        raise ModelError(f"{name} has shape {list(tensor.shape)}, but config.json calls for {list(target.shape)}")
    target.copy_(tensor)


def _is_redundant(name: str, has_head: bool) -> bool:
    """Whether a checkpoint may hold this without a place for it: the head of a tied model is its embedding."""
    return bool(_DERIVED.search(name)) or (name == "lm_head.weight" and not has_head)


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + more
