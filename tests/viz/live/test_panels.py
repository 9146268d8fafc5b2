"""Parts of the screen, each for itself."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from tests.viz.live.scenes import as_text, busy_run, history_of
from tests.viz.web.traces import tight_run
from viz import palette
from viz.live.figures_panel import WINDOW_S, speeds
from viz.live.follower import Told
from viz.live.pool_panel import block_states, pool_panel, rows_wanted
from viz.live.row import Row, fill, rule, shorten, wrap
from viz.live.story_panel import entries_of, story_panel
from viz.live.theme import Theme
from viz.sentences import DECODE, HELD, Sentence

THEME = Theme()

# ---- rows ------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.integers(1, 40))
def test_rows_are_exactly_as_wide_as_they_shall_be(text: str, width: int) -> None:
    assert cell_len("".join(as_text([Row(THEME).add(text).cells(width)]))) == width
    assert cell_len(shorten(text, width, THEME)) == width
    assert all(cell_len(row) == width for row in as_text([rule(text, width, THEME, "note")]))


@given(st.text(alphabet="ab 漢\t", max_size=80), st.integers(2, 20))
def test_wrapped_text_keeps_its_words(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())


def test_rows_are_cut_or_filled() -> None:
    row = Row(THEME).add("x").cells(3)
    assert as_text(fill([row], 2, 3, THEME)) == ["x  ", "   "]
    assert as_text(fill([row] * 5, 2, 3, THEME)) == ["x  ", "x  "]


# ---- the pool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_blocks", [1, 7, 16, 40, 300, 5000])
@pytest.mark.parametrize(("width", "height"), [(31, 10), (79, 40), (32, 6)])
def test_every_block_is_in_some_cell(num_blocks: int, width: int, height: int) -> None:
    history = history_of(busy_run(1, max(num_blocks, 16), max_steps=2))
    follower = history.at(0)
    rows = as_text(pool_panel(follower, width, height, THEME))
    assert len(rows) == height
    assert all(cell_len(row) == width for row in rows)
    grid = [row for row in rows[1:] if row.split()[:1] and row.split()[0].isdigit()]
    glyphs = "".join("".join(row.split()[1:]) for row in grid)
    pool = follower.replay.pool
    per_cell = 1 if "a cell" not in rows[0] else int(rows[0].split()[-4])
    assert len(glyphs) == -(-pool.num_blocks // per_cell)


def test_states_of_blocks_are_those_of_the_pool() -> None:
    history = history_of(tight_run())
    for frame in range(history.last + 1):
        follower = history.at(frame)
        pool, states = follower.replay.pool, block_states(follower)
        changed = follower.allocated | follower.evicted
        for block, look in enumerate(palette.BLOCKS[state] for state in states.tolist()):
            references, holds = pool.ref_counts[block], block in pool.block_hashes
            at_rest = palette.SHARED if references > 1 else palette.IN_USE if references else None
            expected = at_rest or (palette.CACHED if holds else palette.FREE)
            if block in changed:
                expected = palette.EVICTED if block in follower.evicted else palette.ALLOCATED
            assert look is expected


def test_the_legend_counts_all_blocks() -> None:
    history = history_of(tight_run())
    follower = history.at(history.last // 2)
    legend = " ".join(as_text(pool_panel(follower, 40, 12, THEME))[-3:])
    counts = {word: int(legend.split(f" {word}")[0].split()[-1]) for word in ("free", "cached", "in use", "shared")}
    assert sum(counts.values()) == follower.replay.pool.num_blocks
    assert counts["in use"] + counts["shared"] == follower.replay.pool.num_blocks_in_use


def test_a_panel_that_has_all_the_rows_it_wants_shows_block_by_block() -> None:
    follower = history_of(busy_run(1, 100, max_steps=2)).at(0)
    rows = as_text(pool_panel(follower, 40, rows_wanted(100, 40), THEME))
    assert "100 blocks of 4" in rows[0]


# ---- the story -------------------------------------------------------------------------------------------------------


def told(*sentences: tuple[int, str]) -> list[Told]:
    return [Told(step, step, Sentence(DECODE, text, ())) for step, text in sentences]


def test_what_is_repeated_is_told_once() -> None:
    entries = entries_of(told((1, "a"), (1, "x"), (2, "a"), (3, "b"), (3, "a"), (6, "a")))
    assert [(entry.steps, entry.text) for entry in entries] == [("1", "x"), ("3", "b"), ("1–3", "a"), ("6", "a")]


def test_the_newest_sentence_is_always_there_whole_and_an_older_one_as_far_as_there_is_room() -> None:
    long = Told(7, 7, Sentence(HELD, "word " * 40, ()))
    rows = as_text(story_panel([*told((1, "first"), (2, "second")), long], None, 60, 5, THEME))
    assert len(rows) == 5
    assert "word" in rows[1]
    assert not any("second" in row for row in rows)
    newest = as_text(story_panel([long, *told((8, "newest"))], None, 60, 4, THEME))
    assert "7 ‖ word word" in newest[1]
    assert newest[2].rstrip().endswith("wor…")
    assert "8 ● newest" in newest[3]


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_speeds_are_those_of_the_last_second() -> None:
    history = history_of(tight_run())
    assert speeds(history, history.at(0)) == (0.0, 0.0)
    follower = history.at(history.last)
    generated, computed = speeds(history, follower)
    first, last = history.tally(0), follower.tally
    assert last.time_s - first.time_s < WINDOW_S, "then it is the whole run"
    assert generated == pytest.approx((last.generated_tokens - first.generated_tokens) / (last.time_s - first.time_s))
    assert computed > generated
