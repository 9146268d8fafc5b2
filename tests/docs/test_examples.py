"""Every command and every Python example of the pages runs, and prints what the page shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import DOCS, PAGES, Reader, examples_of

WITH_THE_REAL_MODEL = {DOCS / "tutorial.md"}
"""Pages that show what the built-in model answers."""


def has_preemptions(page_data: dict[str, Any]) -> bool:
    """Whether the data of a replay page tells of some."""
    return any("is preempted" in template for template, *_ in page_data["runs"][0]["words"]["templates"])


WHAT_THEY_MUST_SHOW: dict[Path, Callable[[dict[str, Any]], bool]] = {
    DOCS / "reference" / "figures.md": lambda names: (
        bool(names["handover"].taken)
        and {path.name for path in Path().iterdir() if path.suffix in (".png", ".svg")}
        == {"run.png", "timeline.svg", "blocks.png", "compare.png", "cliff.png"}
    ),
    DOCS / "reference" / "trace-format.md": lambda names: names["metrics"].num_preemptions > 0,
    DOCS / "reference" / "web-replay.md": lambda names: (
        names["data"]["runs"][0]["problem"] is None
        and has_preemptions(names["data"])
        and Path("run.html").stat().st_size < Path("pair.html").stat().st_size
    ),
}
"""What the text around some examples promises of them."""

PAGES_WITH_EXAMPLES = [page for page in PAGES if examples_of(page) and page.name != "README.zh.md"]
"""Of the two READMEs one: they have the same code."""


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_the_examples_of_a_page_run(page: Path, reader: Reader, request: pytest.FixtureRequest) -> None:
    if page in WITH_THE_REAL_MODEL:
        request.getfixturevalue("real_model")
        reader.runs_all_commands = True
    elif any(example.needs_model for example in examples_of(page)):
        request.getfixturevalue("stand_in")
    names = reader.follow(page)
    assert page not in WHAT_THEY_MUST_SHOW or WHAT_THEY_MUST_SHOW[page](names)


def test_there_are_examples_on_many_pages() -> None:
    assert len(PAGES_WITH_EXAMPLES) > 5
