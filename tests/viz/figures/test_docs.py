"""The table of docs/reference/figures.md lists every kind. (Its examples run in tests/docs.)"""

from __future__ import annotations

import re

from tests.docs.examples import DOCS
from viz.figures import KINDS

PAGE = (DOCS / "reference" / "figures.md").read_text(encoding="utf-8")


def test_the_table_lists_every_kind() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == KINDS
