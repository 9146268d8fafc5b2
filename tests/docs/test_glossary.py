"""The glossary says everything in two languages."""

from __future__ import annotations

import re

from tests.docs.examples import DOCS

PAGE = (DOCS / "glossary.md").read_text(encoding="utf-8")
HAN = re.compile(r"[\u4e00-\u9fff]")


def entries() -> list[tuple[list[str], list[str]]]:
    """Terms and definitions of each entry."""
    found = []
    for block in re.findall(r"^```\{glossary\}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for entry in re.split(r"\n\n(?=\S)", block):
            lines = [line for line in entry.splitlines() if line.strip()]
            terms = [line for line in lines if not line.startswith(" ")]
            found.append((terms, [line.strip() for line in lines if line.startswith(" ")]))
    return found


def test_each_entry_has_a_term_and_a_sentence_in_each_language() -> None:
    assert len(entries()) > 50
    for terms, sentences in entries():
        assert [bool(HAN.search(term)) for term in terms] == [False, True], terms
        assert [bool(HAN.search(sentence)) for sentence in sentences] == [False, True], terms
        assert sentences[0].endswith("."), terms
        assert sentences[1].endswith("。"), terms


def test_no_term_is_explained_twice() -> None:
    terms = [term for names, _ in entries() for term in names]
    assert len(terms) == len(set(terms))
