"""What stands in a figure that was drawn."""

from __future__ import annotations

from itertools import combinations
from unittest.mock import patch

from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def texts_of(figure: Figure) -> set[str]:
    """All that is written in it."""
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)} - {""}


def _places(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is really drawn, and where, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    drawn: list[Text] = []
    draw = Text.draw

    def note(text: Text, renderer: RendererBase) -> None:
        drawn.append(text)
        draw(text, renderer)

    with patch.object(Text, "draw", note):
        figure.draw(renderer)
    # Of an annotation its words without its arrow.
    places = {
        text: Text.get_window_extent(text, renderer) for text in drawn if text.get_visible() and text.get_text().strip()
    }
    return [(text.get_text(), place) for text, place in places.items()]


def flaws(figure: Figure) -> list[str]:
    """Texts that are drawn over each other, or reach beyond the figure's edges."""
    places = _places(figure)
    page = figure.bbox.padded(1)
    cut_off = [text for text, box in places if not (page.contains(*box.min) and page.contains(*box.max))]
    inner = [(text, box.padded(-1)) for text, box in places]
    covered = [(a, b) for (a, box_a), (b, box_b) in combinations(inner, 2) if box_a.overlaps(box_b)]
    return [f"{text!r} is cut off" for text in cut_off] + [f"{a!r} and {b!r} cover each other" for a, b in covered]
