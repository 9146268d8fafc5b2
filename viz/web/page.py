"""A run, or two to compare, as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from string import Template
from typing import Any

from nanovllm.errors import FileError
from nanovllm.trace.diff import Difference, diff
from nanovllm.trace.jsonl import Trace
from viz import palette
from viz.web.block_rows import CHANGES
from viz.web.recording import record
from viz.web.scripts import bundle, source


def write_page(trace: Trace, path: str | Path, compare: Trace | None = None) -> None:
    """Write a page that replays ``trace``, beside ``compare`` if there is one, in any browser of today.

    The file holds all it needs and asks nothing of any network. Raises ``FileError`` if it cannot be written.
    """
    text = page(trace, compare)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from error


def page(trace: Trace, compare: Trace | None = None) -> str:
    """The page as text: see ``write_page``."""
    names = [Path(run.path).name for run in (trace, compare) if run is not None]
    style, script = source("page.css"), bundle("page.js")
    policy = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_digest(script)}'",
        "style-src": f"'sha256-{_digest(style)}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return Template(source("template.html")).substitute(
        policy="; ".join(f"{directive} {allowed}" for directive, allowed in policy.items()),
        title=html.escape(f"{' and '.join(names)}: replay"),
        style=style,
        data=_json_in_html(page_data(trace, compare)),
        script=script,
    )


def page_data(trace: Trace, compare: Trace | None = None) -> dict[str, Any]:
    """What ``mount`` (``app.js``) draws from, as plain values."""
    runs = [record(run) for run in (trace, compare) if run is not None]
    difference = None if compare is None else _difference(diff(trace.events, compare.events))
    return {
        "runs": runs,
        "difference": difference,
        "looks": {
            name: {"label": look.label, "light": look.light, "dark": look.dark, "glyph": look.glyph}
            for name, look in palette.LOOKS.items()
        },
        "meanings": {
            "activities": [look.name for look in palette.ACTIVITIES],
            "blocks": [look.name for look in palette.BLOCKS],
            "changes": CHANGES,
        },
    }


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    """``step``: that of the first decision in which two runs differ, None if they differ in their options only."""
    if difference is None:
        return None
    is_before_all = difference.event is not None and difference.step is None
    return {"step": 0 if is_before_all else difference.step, "facts": str(difference).splitlines()}


def _json_in_html(data: Any) -> str:
    """JSON that cannot end its script element or open another: no ``<``, ``>`` or ``&``, ASCII only."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
