"""A figure as the value of a notebook's cell."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from viz.figures.canvas import told_as_it_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_WIDTH_PX = 900
PIXELS_PER_SHOWN = 1.5
"""Sharp on most screens, and still some tens of kilobytes."""

MimeBundle = tuple[dict[str, Any], dict[str, Any]]
"""Data and metadata by media type, as IPython displays them."""


class Picture:
    """``figure`` as a PNG. ``words`` say what it shows, for those who cannot see it and where there is text only."""

    def __init__(self, figure: Figure, words: str) -> None:
        dpi = SHOWN_WIDTH_PX * PIXELS_PER_SHOWN / figure.get_figwidth()
        buffer = BytesIO()
        with told_as_it_is(figure):
            figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None}, pil_kwargs={"optimize": True})
        self.png = buffer.getvalue()
        self.words = words

    def __repr__(self) -> str:
        return f"[picture: {self.words}]"

    def _repr_mimebundle_(self, **_: object) -> MimeBundle:
        """What IPython asks for."""
        data = {"image/png": self.png, "text/plain": repr(self)}
        return data, {"image/png": {"alt": self.words, "width": SHOWN_WIDTH_PX}}
