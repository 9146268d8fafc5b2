"""A real browser, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanovllm.trace.jsonl import Trace
from viz.web import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """``open_page(trace, compare=None, hash="", **options of the browser's context)``: a page from a file, with the
    network off. At the end nothing may have been asked of any network and no error have been logged."""
    contexts, complaints = [], []

    def open_page(trace: Trace, compare: Trace | None = None, hash: str = "", **options: Any) -> Page:
        path = tmp_path / f"run{len(contexts)}.html"
        write_page(trace, path, compare)
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: request.url.startswith("file:") or complaints.append(request.url))
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri() + hash)
        page.wait_for_selector("body[data-state]")
        assert page.evaluate("document.body.dataset.state") == "ready", page.inner_text("#problem")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
