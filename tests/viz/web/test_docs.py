"""The table of keys of docs/reference/web-replay.md is the one of the page. (Its examples run in tests/docs.)"""

from __future__ import annotations

import re

from tests.docs.examples import DOCS
from viz.web.scripts import source

PAGE = (DOCS / "reference" / "web-replay.md").read_text(encoding="utf-8")
SHOWN = {" ": "Space", "ArrowRight": "→", "ArrowLeft": "←", "Escape": "Esc"}


def test_the_table_lists_every_key() -> None:
    lists = re.findall(r"^    \[\[(.*?)\], ", source("keys.js"), re.MULTILINE)
    keys = {key for names in lists for key in re.findall(r'"(.*?)"', names)}
    table = PAGE[PAGE.index("| key |") : PAGE.index("The wheel zooms")]
    told = set(re.findall(r"`(.+?)`", table)) - {"Enter"}
    assert told == {SHOWN.get(key, key.upper() if len(key) == 1 else key) for key in keys}
