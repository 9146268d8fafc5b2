"""What the program is that computes rows, told by its own source files: where one changes, rows may."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import xxhash

from nanovllm import version

WITHOUT_PART = (
    *("nanovllm/attention", "nanovllm/cli", "nanovllm/layers", "nanovllm/llm", "nanovllm/models", "nanovllm/runner"),
    *("sim/benchmarks", "sim/museum"),
)
"""What no simulation runs: the real models, the command line, and who only looks on."""


@cache
def program_digest() -> str:
    """A number for all source files that have a part in simulations. Read once a process: what is changed later is not
    what this process runs."""
    return sources_digest([Path(version.__file__).parent, Path(__file__).parents[1]])


def sources_digest(packages: Iterable[Path]) -> str:
    """A number for the Python files of some packages, their names and what they hold, wherever they are installed."""
    hashed = xxhash.xxh3_128()
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent).as_posix()
            if not name.startswith(tuple(f"{part}/" for part in WITHOUT_PART)):
                source = path.read_bytes()
                hashed.update(f"{name} {len(source)} ".encode())
                hashed.update(source)
    return hashed.hexdigest()
