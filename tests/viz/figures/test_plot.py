"""``plot``: from a trace to a file, and what is said of mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from nanovllm.errors import FileError, TraceError, UserError
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.jsonl import read_trace, write_trace
from tests.trace.runs import preempting_run
from tests.viz.figures import runs
from tests.viz.figures.drawn import texts_of
from viz.figures import KINDS, draw, plot
from viz.notebook.picture import Picture

ALL = ",".join(KINDS)


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return runs.a_bit_of_everything()


@pytest.mark.parametrize(("name", "kinds"), [("all.png", ALL), ("some.svg", "timeline,blocks,kv,handover")])
def test_several_kinds_in_one_file_the_same_each_time(
    tmp_path: Path, events: list[AnyEvent], name: str, kinds: str
) -> None:
    first = plot(events, kinds, tmp_path / name).read_bytes()
    second = plot(events, kinds.split(","), tmp_path / f"again-{name}").read_bytes()
    assert first == second
    if name.endswith(".png"):
        assert first.startswith(b"\x89PNG")
        assert len(first) > 50_000
    else:
        assert ElementTree.fromstring(first).tag.endswith("svg")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_time", [False, True])
def test_each_kind_alone_and_in_part(events: list[AnyEvent], kind: str, by_time: bool) -> None:
    figure = draw(events, kind, steps=(2, 7), by_time=by_time)
    assert figure.axes
    assert texts_of(figure)


def test_kinds_share_one_axis(events: list[AnyEvent]) -> None:
    figure = draw(events, "timeline, kv ,tokens,kv", steps=(3, 9))
    assert [ax.get_xlim() for ax in figure.axes] == [(2.5, 9.5)] * 3


def test_the_step_that_is_shown_is_the_first_that_preempts(events: list[AnyEvent]) -> None:
    assert "Step 6: who is in hand, and who gives way" in texts_of(draw(events, "queue"))
    assert "Step 12: who is in hand, and who gives way" in texts_of(draw(events, "queue", steps=(7, None)))
    with pytest.raises(UserError, match="none of the steps asked for preempts a request; those that do: 6, 12"):
        draw(events, "handover", steps=(7, 9))


def test_mistakes_are_named(tmp_path: Path, events: list[AnyEvent]) -> None:
    with pytest.raises(UserError, match="'pie' is no kind of figure: the kinds are timeline, blocks, kv, queues, tok"):
        plot(events, "timeline,pie", tmp_path / "out.png")
    with pytest.raises(UserError, match="no kind of figure is asked for: the kinds are"):
        draw(events, [])
    with pytest.raises(FileError, match=re.escape("out.jpg: is no name for a picture: it must end in .png or .svg")):
        plot(events, "kv", tmp_path / "out.jpg")
    with pytest.raises(FileError, match=r"out\.png: cannot be written: No such file or directory"):
        plot(events, "kv", tmp_path / "nowhere" / "out.png")
    with pytest.raises(UserError, match="there is no such step: the trace has steps 0 to"):
        plot(events, "kv", tmp_path / "out.png", steps=(500, None))
    with pytest.raises(TraceError, match="is empty"):
        plot([], "kv", tmp_path / "out.png")
    assert not list(tmp_path.iterdir())


def test_an_incomplete_trace_is_drawn_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_trace(preempting_run(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b'"step":9') + 5])
    trace = read_trace(path)
    for kind in ("timeline", "blocks", "kv", "queues", "tokens", "latency", "progress", "queue", "handover"):
        marks = [text for text in texts_of(draw(trace, kind)) if text.startswith("incomplete: ")]
        assert marks == ["incomplete: the file was cut within this line"], kind
    assert not [text for text in texts_of(draw(preempting_run(), ALL)) if text.startswith("incomplete")]


def test_views_load_no_matplotlib_before_they_draw() -> None:
    code = "import sys, viz.figures; assert not any(name.startswith('matplotlib') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_drawing_needs_no_pyplot_and_says_how_to_get_matplotlib() -> None:
    code = """
import sys
from tests.viz.figures import runs
from viz.figures import KINDS, draw
draw(runs.a_bit_of_everything(), KINDS)
assert "matplotlib.pyplot" not in sys.modules
for name in [name for name in sys.modules if name.startswith("matplotlib")]:
    del sys.modules[name]
sys.modules["matplotlib"] = sys.modules["matplotlib.figure"] = None
try:
    draw(runs.a_bit_of_everything(), "kv")
except ValueError as error:
    assert str(error) == "figures need matplotlib, which is not installed: pip install 'nanovllm-lab[viz]'", error
else:
    raise AssertionError("drawn without matplotlib")
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("names", [("$\\no$", "请求", "$a_b$", "x" * 3000), ("\x1b[2J", "a\nb", "💥", "$")])
def test_ids_are_drawn_as_they_are(names: tuple[str, ...], tmp_path: Path) -> None:
    """Warnings are errors here: there is none, not even of letters that the font lacks."""
    known = dict(zip("BACD", names, strict=True))
    events = [rename(event, known) for event in runs.preempted_from_the_tail()]
    for kinds in (*KINDS, ALL):
        assert plot(events, kinds, tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    picture = Picture(draw(events, "timeline"), "a run")
    assert picture.png.startswith(b"\x89PNG")


def rename(event: AnyEvent, names: dict[object, str]) -> AnyEvent:
    """The same with other names of requests."""
    there = [field for field in ("request", "for_request") if hasattr(event, field)]
    changes: dict[str, Any] = {field: names[getattr(event, field)] for field in there}
    if hasattr(event, "requests"):
        changes["requests"] = [names[request] for request in event.requests]
    return msgspec.structs.replace(event, **changes)
