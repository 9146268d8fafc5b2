"""The web replay as an anywidget: the same JavaScript, on data that the kernel hands over."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from nanovllm.trace.jsonl import Trace
from viz.notebook.picture import MimeBundle, Picture
from viz.web import page_data
from viz.web.scripts import bundle


class ReplayWidget(anywidget.AnyWidget):
    """A replay of ``trace``. ``step`` can be read and set: it is the step that is shown."""

    _esm = bundle("app.js") + "\n" + (files("viz.notebook") / "widget.js").read_text(encoding="utf-8")
    _data = traitlets.Dict().tag(sync=True)
    step = traitlets.Int().tag(sync=True)

    def __init__(self, trace: Trace, picture: Picture) -> None:
        """``picture`` is shown where widgets are not."""
        super().__init__(_data=page_data(trace))
        self.picture = picture

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle | None:
        """The widget beside its picture: each front end takes the best that it can draw."""
        bundle = super()._repr_mimebundle_()
        if bundle is None:
            return None
        data, metadata = self.picture._repr_mimebundle_()
        return {**data, **bundle[0], "text/plain": repr(self.picture)}, {**metadata, **bundle[1]}
