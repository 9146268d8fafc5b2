"""The screen fits its terminal exactly, whatever the run, and says in words and glyphs what there is to see."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.style import Style

from nanovllm.trace.events import RequestAdded, TraceStarted
from tests.trace.runs import preempting_run
from tests.viz.live.scenes import busy_run, history_of, paused_at, screen_text
from tests.viz.web.traces import tight_run
from viz import palette
from viz.live.history import History
from viz.live.player import Player
from viz.live.screen import Scene, Screen
from viz.live.theme import Theme, _style

SIZES = [(80, 24), (100, 30), (200, 60)]


@pytest.fixture(scope="module", params=[(4, 16), (4, 5000), (400, 16), (400, 5000)], ids=str)
def history(request: pytest.FixtureRequest) -> History:
    """4 and 400 requests, 16 and 5,000 blocks."""
    num_requests, num_blocks = request.param
    return history_of(busy_run(num_requests, num_blocks, max_steps=60))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("theme", [Theme(), Theme(is_ascii=True)], ids=["unicode", "ascii"])
def test_every_moment_fits_and_shows_all_panels(history: History, size: tuple[int, int], theme: Theme) -> None:
    for frame in {0, 1, history.last // 2, history.last}:
        text = "\n".join(screen_text(paused_at(history, frame, is_growing=True), *size, theme))
        for words in ("running", "waiting", "KV", "what happened", "tokens/s", "hit rate", "preemption", "quit"):
            assert words in text
        assert not theme.is_ascii or text.isascii()


def test_many_requests_are_folded() -> None:
    history = history_of(busy_run(400, 16, max_steps=60))
    num_waiting = len(history.at(0).replay.waiting)
    assert num_waiting > 390
    small, large = (screen_text(paused_at(history, 0), *size) for size in SIZES[::2])
    for rows in (small, large):
        heading = next(i for i, row in enumerate(rows) if f"waiting {num_waiting}" in row)
        more = next(i for i, row in enumerate(rows) if i > heading and "… and" in row)
        assert f"… and {num_waiting - (more - heading - 1)} more" in rows[more]
    assert sum(" … r" in row for row in large) > 3 * sum(" … r" in row for row in small)


def test_a_preemption_is_seen_and_told() -> None:
    rows = screen_text(paused_at(history_of(preempting_run()), 4))
    text = " ".join(" ".join(rows).split())
    assert "1 is preempted for 0: gives up 2 blocks, loses 7 cached tokens; first time" in text
    assert any(row.startswith(" ▼ 1") and "▼1" in row and " 0/8" in row for row in rows), "in the queue"
    assert any(row.startswith(" ● 0") for row in rows)
    assert "1 preemption " in text
    assert "+ 1 new" in text
    assert "step 4 of 14" in rows[0]


def test_why_the_budget_is_not_used_up() -> None:
    history = history_of(tight_run())
    texts = ["\n".join(screen_text(paused_at(history, frame))) for frame in range(history.last + 1)]
    assert any("16 of 16 tokens, 0 unused" in text and "the budget is used up" in text for text in texts)
    assert any("unused: nobody else is waiting" in text for text in texts)
    assert any("is held: needs" in text for text in texts)
    assert any("a decode computes one token of each running request" in text for text in texts)


def test_a_step_that_is_being_computed() -> None:
    events = busy_run(4, 16)
    end = next(i for i, event in enumerate(events) if type(event).__name__ == "ChunkScheduled") + 1
    history = history_of(events[:end])
    text = "\n".join(screen_text(Scene(history, Player(), is_growing=True)))
    assert "step 0: computing" in text
    assert "live" in text.splitlines()[0]
    assert palette.SCHEDULED.glyph * 3 in text


def test_before_the_first_step_and_before_the_run() -> None:
    header, *events = busy_run(4, 16)
    assert isinstance(header, TraceStarted)
    assert "waiting for the run to begin" in screen_text(Scene(History(), Player(), is_growing=True))[0]
    arrived = [event for event in events[:2] if isinstance(event, RequestAdded)]
    text = "\n".join(screen_text(paused_at(history_of([header, *arrived]), 0, is_growing=True)))
    assert "before step 0" in text
    assert "r0 arrives" in text


def test_why_a_trace_ends_is_marked() -> None:
    history = history_of(preempting_run()[:-5])
    end = "\n".join(screen_text(paused_at(history, history.last, problem="the trace is incomplete: x:9: cut")))
    assert "! the trace is incomplete: x:9: cut" in end
    middle = "\n".join(screen_text(paused_at(history, 2, problem="the trace is incomplete: x:9: cut")))
    assert "incomplete" in middle.splitlines()[0]
    assert "x:9" not in middle


def test_the_pace_is_told() -> None:
    history = history_of(preempting_run())

    def pace(player: Player, is_growing: bool = True, num_pending: int = 0) -> str:
        return screen_text(Scene(history, player, is_growing, num_pending))[0].split("   ")[-1].strip()

    last = history.last
    assert pace(Player(frame=last)) == "live"
    assert pace(Player(frame=last), num_pending=5000) == "live, 5,000 events behind"
    fast = screen_text(Scene(history, Player(frame=last), is_growing=True, newest_step=98_765))[0]
    assert "step 14 of 98,765" in fast
    assert fast.endswith("   too fast to follow ")
    assert pace(Player(frame=3, is_paused=True)) == f"paused, {last - 3} behind"
    assert pace(Player(frame=3, is_paused=True), is_growing=False) == "paused"
    assert pace(Player(frame=3, speed=20)) == "20 steps/s"
    assert pace(Player(frame=last, speed=20), is_growing=False) == "the end"


def test_the_last_row_tells_keys_and_notices() -> None:
    history = history_of(preempting_run())
    keys = screen_text(Scene(history, Player(), is_growing=True))[-1]
    assert all(
        key in keys for key in ("space pause", "← → step", "p preemption", "h hit", "c chunk", "+ - speed", "q quit")
    )
    notice = screen_text(Scene(history, Player(notice="there is no later step"), is_growing=True))[-1]
    assert notice.startswith(" there is no later step")
    ended = screen_text(Scene(history, Player(frame=history.last, linger_s=3.2), is_growing=False))[-1]
    assert ended.startswith(" the run is over: a key keeps this screen, else it closes in 3 s")


@pytest.mark.parametrize("size", [(79, 24), (80, 23), (20, 5), (1, 1)], ids=str)
def test_a_terminal_that_is_too_small_is_told_so(size: tuple[int, int]) -> None:
    rows = screen_text(paused_at(history_of(preempting_run()), 0), *size)
    told = f"the view needs 80×24, the terminal has {size[0]}×{size[1]}"
    assert rows[0].rstrip() == told[: size[0]].rstrip()


def test_names_from_a_trace_cannot_do_anything_to_the_terminal() -> None:
    header, *events = busy_run(4, 16)
    assert isinstance(header, TraceStarted)
    name = "\x1b[2Jé\n漢字漢字漢字漢字漢字漢字漢字漢字漢字"
    events = [RequestAdded(name, 0.0, 0.0, 5, 5), *events]
    rows = screen_text(paused_at(history_of([header, events[0]]), 0, is_growing=True))
    assert any("?[2Jé?漢字" in row for row in rows)
    assert not any("\x1b" in row or "\n" in row for row in rows)


def drawn(environment: dict[str, str]) -> str:
    # rich's styles keep the codes of the first console that drew them, whatever colours the next one has.
    _style.cache_clear()
    Style._add.cache_clear()  # type: ignore[attr-defined]
    stream = io.StringIO()
    console = Console(
        file=stream, width=80, height=24, force_terminal=True, color_system="truecolor", _environ=environment
    )
    scene = paused_at(history_of(preempting_run()), 4)
    console.print(Screen(scene, Theme.of(console)), end="")
    return stream.getvalue()


def test_colour_is_an_addition_that_can_be_left_out() -> None:
    hit = palette.PREEMPTED.dark
    coloured = "38;2;{};{};{}".format(*(int(hit[i : i + 2], 16) for i in (1, 3, 5)))
    assert coloured in drawn({})
    plain = drawn({"NO_COLOR": "1"})
    assert "38;2" not in plain
    assert "48;2" not in plain
    assert "▼ 1" in "\n".join(screen_text(paused_at(history_of(preempting_run()), 4)))


def test_a_light_ground_if_the_terminal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert "48;2;255;255;255" in drawn({})
    monkeypatch.setenv("COLORFGBG", "15;0")
    assert "48;2;255;255;255" not in drawn({})


def test_a_console_without_unicode_gets_letters() -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert Theme.of(console).is_ascii
    assert not Theme.of(Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))).is_ascii
