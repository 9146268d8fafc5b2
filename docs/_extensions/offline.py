"""Warns of pages that would fetch something from a network when they are opened."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

FETCHES = re.compile(r"""<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")

log = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", warn_of_fetches)
    return {"parallel_read_safe": True}


def warn_of_fetches(app: Sphinx, error: Exception | None) -> None:
    """Look through all pages that were built."""
    if error is None and app.builder.format == "html":
        for page in sorted(Path(app.outdir).rglob("*.html")):
            for tag in FETCHES.findall(page.read_text(encoding="utf-8")):
                log.warning("%s is not self-contained: %s", page.relative_to(app.outdir), tag)
