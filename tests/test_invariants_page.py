"""The page of laws names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "invariants.md"
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def names_in(path: Path) -> set[str]:
    """What a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_named_test_exists() -> None:
    named = TEST_NAME.findall(PAGE.read_text())
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)]
    assert missing == []


def test_every_law_has_a_number_and_a_test() -> None:
    laws = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(line.split("|")[1]) for line in laws] == list(range(1, len(laws) + 1))
    assert [line for line in laws if len(TEST_NAME.findall(line)) != 1] == []
