"""What stands in a figure that was drawn."""

from __future__ import annotations

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text


def texts_of(figure: Figure) -> set[str]:
    """All that is written in it."""
    return {text.get_text() for text in _texts(figure)} - {""}


def _texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_visible()]


def collisions(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that are drawn over each other."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = []
    for text in _texts(figure):
        if text.get_text().strip():
            # Of an annotation only its words, not its arrow; a pixel less on each side: letters, not their boxes.
            window = (Text if isinstance(text, Annotation) else type(text)).get_window_extent(text, renderer)
            boxes.append((text.get_text(), window.padded(-1)))
    return [(a, b) for (a, box_a), (b, box_b) in combinations(boxes, 2) if box_a.overlaps(box_b)]


def cut_off(figure: Figure) -> list[str]:
    """Texts that reach beyond the figure's edges."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    page = figure.bbox.padded(1)
    cut = []
    for text in _texts(figure):
        window = text.get_window_extent(renderer)
        if text.get_text().strip() and not (page.contains(*window.min) and page.contains(*window.max)):
            cut.append(text.get_text())
    return cut
