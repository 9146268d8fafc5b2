"""Links lead somewhere, from the pages of the documentation and from those that one reads on GitHub only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.examples import PAGES, ROOT

ALL_PAGES = [*PAGES, ROOT / "CHANGELOG.md"]


def links_of(page: Path) -> list[str]:
    """Targets of the page's links and pictures, but those of the web."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or ()]
    targets = [child.attrs.get("href") or child.attrs.get("src") for child in inline]
    return [str(target) for target in targets if target and not re.match(r"[a-z]+:", str(target))]


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub and MyST make of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors_of(target), f"{link}: there is no such heading"
