"""The README in English and the one in Chinese show the same code, and lead to each other."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from tests.docs.examples import ROOT

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """The code of a page: language and text of each block, without comments."""
    fences = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    return [(fence.info, re.sub(r" *# .*", "", fence.content)) for fence in fences]


def sections(text: str) -> list[int]:
    """The levels of the headings, in order."""
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def links(text: str) -> list[str]:
    """Where links lead, in order."""
    return re.findall(r"\]\((.+?)\)", text)


def test_both_have_the_same_code_but_for_comments() -> None:
    assert blocks(CHINESE) == blocks(ENGLISH)


def test_both_have_the_same_sections_and_links() -> None:
    assert sections(CHINESE) == sections(ENGLISH)
    assert links(CHINESE)[1:] == links(ENGLISH)[1:]
    assert (links(CHINESE)[0], links(ENGLISH)[0]) == ("README.md", "README.zh.md")
