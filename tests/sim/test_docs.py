"""The page on workloads tells of every field. (Its examples run in tests/docs.)"""

from __future__ import annotations

from sim.workload.files import FIELDS
from tests.docs.examples import DOCS


def test_the_format_table_names_every_field() -> None:
    table = (DOCS / "reference" / "workloads.md").read_text(encoding="utf-8")
    assert [field for field in FIELDS if f"`{field}`" not in table] == []
