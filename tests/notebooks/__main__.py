"""Runs notebooks and stores their outputs in them: ``python -m tests.notebooks [PART OF A NAME ...]``."""

from __future__ import annotations

import sys
import time

import nbformat

from tests.notebooks.execution import NOTEBOOKS, execute


def main(parts: list[str]) -> None:
    """Only notebooks whose name has one of ``parts`` in it; all if there are none."""
    for path in NOTEBOOKS:
        if not parts or any(part in path.name for part in parts):
            start_s = time.perf_counter()
            nbformat.write(execute(path), path)
            seconds, kilobytes = time.perf_counter() - start_s, path.stat().st_size / 1e3
            sys.stdout.write(f"{path.name}: {seconds:.1f} s, {kilobytes:.0f} kB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
