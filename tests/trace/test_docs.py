"""The table of docs/reference/trace-format.md is the one of events.py. (Its examples run in tests/docs.)"""

from __future__ import annotations

import re
from typing import get_args

from nanovllm.trace.events import SCHEMA_VERSION, AnyEvent
from tests.docs.examples import DOCS

PAGE = (DOCS / "reference" / "trace-format.md").read_text(encoding="utf-8")


def test_the_table_lists_every_event_with_its_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    told = {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}
    known = {kind.__struct_config__.tag: list(kind.__struct_fields__) for kind in get_args(AnyEvent)}
    assert told == known
    assert f"`schema` is {SCHEMA_VERSION}." in PAGE
