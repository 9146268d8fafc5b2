"""A figure as the value of a cell."""

from __future__ import annotations

from tests.viz.figures import runs
from viz.figures import timeline
from viz.notebook import Picture


def test_a_picture_is_a_png_with_words() -> None:
    picture = Picture(timeline(runs.preempted_from_the_tail()), "D is preempted")
    data, metadata = picture._repr_mimebundle_(include=None, exclude=None)
    assert data["text/plain"] == "[picture: D is preempted]"
    assert data["image/png"].startswith(b"\x89PNG")
    assert int.from_bytes(data["image/png"][16:20], "big") == 1350, "1.5 pixels for each that is shown"
    assert metadata == {"image/png": {"alt": "D is preempted", "width": 900}}


def test_the_same_figure_is_the_same_file() -> None:
    first, second = (Picture(timeline(runs.preempted_from_the_tail()), "").png for _ in range(2))
    assert first == second
