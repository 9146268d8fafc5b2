"""Classes of one's own, which an option names as ``module:Class`` in the place of a name that it knows."""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from nanovllm.errors import ConfigError


def is_class_name(text: object) -> bool:
    """Whether this has the form ``module:Class``; the module may be one of a package, ``package.module``."""
    if not isinstance(text, str):
        return False
    module, _, name = text.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def check_name(option: str, value: object, known: Collection[str]) -> None:
    """Raise ``ConfigError`` for what is neither a known name nor of the form ``module:Class``. Imports nothing."""
    if value not in known and not is_class_name(value):
        raise ConfigError(option, value, f"one of {', '.join(known)}, or module:Class")


def import_class(option: str, text: str) -> type:
    """The class that ``module:Class`` names; the module is looked for where Python finds all others, then in the
    current directory. Raises ``ConfigError`` if there is no such module or class, or importing it fails."""
    module_name, _, name = text.partition(":")
    _look_in_current_directory()
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever a user's module raises
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(option, text, f"module {module_name!r} cannot be imported ({reason})") from None
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise ConfigError(option, text, f"module {module_name!r} has no class {name!r}")
    return found


def source_file(text: str) -> str | None:
    """The file of the module in ``module:Class``, which is not imported for it; None if it is not found."""
    _look_in_current_directory()
    try:
        spec = find_spec(text.partition(":")[0])
    except Exception:  # of a package around it, which is imported
        return None
    return None if spec is None else spec.origin


def _look_in_current_directory() -> None:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.append(directory)  # last, so that no file there stands in for a module that others mean
