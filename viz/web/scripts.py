"""The page's scripts and styles: separate files to read, one text to run.

``page/*.js`` are ES modules. A page that is opened from a disk cannot import further files, so they are put one after
the other, each after those it imports; their top-level names are therefore unique.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<name>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)
_STYLES = ("base.css", "panels.css", "blocks.css", "controls.css")


def source(name: str) -> str:
    """The text of a file of the page."""
    return (files("viz.web") / "page" / name).read_text(encoding="utf-8")


def styles() -> str:
    """The style sheet of a mounted replay."""
    return "\n".join(map(source, _STYLES))


def bundle(entry: str) -> str:
    """The module ``entry`` and all it imports as one module, with ``STYLES``, the style sheet, in scope.

    ``bundle("app.js") + "export default ..."`` makes a module for another page: ``mount`` is in its scope.
    """
    modules: dict[str, str] = {}
    _collect(entry, modules)
    return "\n".join([f"const STYLES = {json.dumps(styles())};", *modules.values()])


def _collect(name: str, modules: dict[str, str]) -> None:
    text = source(name)
    for match in _IMPORT.finditer(text):
        if match["name"] not in modules:
            _collect(match["name"], modules)
    modules[name] = _EXPORT.sub("", _IMPORT.sub("", text))
