"""The page as a file: one, closed in itself, and safe whatever the trace says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nanovllm.errors import FileError
from tests.viz.web.traces import as_trace, request, run, tight_config, tight_run
from viz.web import page, page_data, write_page
from viz.web.scripts import bundle, source


class Elements(HTMLParser):
    """All elements of a page, with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data  # the parser hands over long texts in pieces


def script_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_only_its_own_script_and_style_may_run() -> None:
    elements = Elements(page(as_trace(tight_run())))
    policy = next(attrs["content"] for tag, attrs in elements.found if "http-equiv" in attrs)
    assert policy is not None
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == script_hash(elements.texts["script"][1])
    assert directives["style-src"] == script_hash(elements.texts["style"][0])


def test_nothing_is_loaded_from_anywhere() -> None:
    text = page(as_trace(tight_run()))
    elements = Elements(text)
    assert not [attrs for _, attrs in elements.found if {"src", "href", "style", "onclick", "onload"} & attrs.keys()]
    assert re.findall(r"https?://[^\"']*", text) == ["http://www.w3.org/2000/svg"] * text.count("www.w3.org/2000/svg")
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in bundle("page.js")


def test_no_text_of_a_trace_is_markup() -> None:
    evil = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\u2028\u2029",
        "&lt;",
        "<img src=x onerror=alert(1)>",
    ]
    requests = [request(name, [1, 2, 3], 2) for name in evil]
    text = page(as_trace(run(tight_config(), requests), "</title><b>.jsonl"))
    elements = Elements(text)
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert {"b", "img"}.isdisjoint(tag for tag, _ in elements.found)
    assert not any(character in text for character in "\u2028\u2029")
    assert json.loads(elements.texts["script"][0])["runs"][0]["ids"] == evil


def test_the_same_trace_makes_the_same_page() -> None:
    assert page(as_trace(tight_run())) == page(as_trace(tight_run()))


def test_only_the_name_of_the_file_is_told(tmp_path: Path) -> None:
    trace = as_trace(tight_run(), str(tmp_path / "run.jsonl"))
    assert str(tmp_path) not in page(trace)


def test_where_it_cannot_be_written_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nowhere/run\.html: cannot be written: No such file or directory"):
        write_page(as_trace(tight_run()), tmp_path / "nowhere" / "run.html")


def test_runs_that_differ_before_their_first_step_differ_at_its_start() -> None:
    runs = [run(tight_config(), [request(name, [1, 2, 3], 2)]) for name in "ab"]
    difference = page_data(as_trace(runs[0]), as_trace(runs[1]))["difference"]
    assert difference["step"] == 0


def test_runs_that_differ_in_options_only_have_no_first_different_step() -> None:
    runs = [run(tight_config(max_num_seqs=seqs), [request("a", [1, 2, 3], 2)]) for seqs in (2, 3)]
    difference = page_data(as_trace(runs[0]), as_trace(runs[1]))["difference"]
    assert difference == {
        "step": None,
        "facts": ["max_num_seqs is 2 in A, 3 in B", "the decisions are the same"],
    }


def test_every_file_of_the_page_is_used_and_short() -> None:
    directory = Path(__file__).parents[3] / "viz" / "web" / "page"
    whole = bundle("page.js")
    for path in directory.iterdir():
        text = source(path.name)
        assert text.count("\n") < 300
        if path.suffix == ".js":
            assert text.splitlines()[0] in whole, f"{path.name} is imported by nothing"


def test_a_bundle_has_no_imports_left_and_no_name_twice() -> None:
    text = bundle("page.js")
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
