"""The browser that tests of pages share: one for the whole run, as its driver allows no second."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_EXECUTABLES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once. Skips where it, or the package that drives it, is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    executable = next(filter(None, map(shutil.which, _EXECUTABLES)), None)
    if executable is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable,
            args=["--no-sandbox"],
            timeout=180_000,  # a busy machine starts it slowly
        )
        yield browser
        browser.close()
