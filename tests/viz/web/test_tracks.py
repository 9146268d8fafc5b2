"""A track gives back, at every frame, the values that were put."""

from __future__ import annotations

from hypothesis import given, strategies as st

from viz.web.tracks import Track

Row = list[tuple[int, int, int]]
"""A row's values frame by frame: (steady, growing, growing)."""


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Stretches in which the numbers stand still or grow evenly, with jumps between."""
    values: Row = []
    tokens = cached = draw(st.integers(0, 9))
    for _ in range(draw(st.integers(1, 5))):
        steady, by, also_by = draw(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.integers(0, 1)))
        for _ in range(draw(st.integers(1, 4))):
            values.append((steady, tokens, cached))
            tokens, cached = tokens + by, cached + also_by
        tokens += draw(st.integers(-2, 2))
    return values


def record(track: Track, all_rows: list[Row]) -> None:
    """Put what changed and what moves, as a caller must."""
    for frame in range(max(map(len, all_rows))):
        for row, values in enumerate(all_rows):
            if frame >= len(values):
                continue
            has_changed = frame == 0 or values[frame] != values[frame - 1]
            if has_changed or row in track.moving:
                track.put(row, frame, values[frame])
            if frame == len(values) - 1:
                track.end(row)


@given(st.lists(rows(), min_size=1, max_size=4))
def test_values_follow_from_the_points(all_rows: list[Row]) -> None:
    track = Track(("steady",), ("tokens", "cached"))
    record(track, all_rows)
    table = {name: list(column) for name, column in track.columns(len(all_rows)).items()}  # type: ignore[arg-type]
    for row, values in enumerate(all_rows):
        points = range(table["first"][row], table["first"][row + 1])
        for frame, expected in enumerate(values):
            point = max(i for i in points if table["frame"][i] <= frame)
            gone = frame - table["frame"][point]
            grown = [table[name][point] + table[f"{name}_growth"][point] * gone for name in ("tokens", "cached")]
            assert (table["steady"][point], *grown) == expected


def test_an_even_stretch_is_one_point() -> None:
    track = Track(("activity",), ("tokens",))
    record_one = [(1, 10 + frame) for frame in range(1000)]
    for frame, values in enumerate(record_one):
        track.put(0, frame, values)
    table = track.columns(1)
    assert {name: list(column) for name, column in table.items()} == {  # type: ignore[arg-type]
        "first": [0, 1],
        "frame": [0],
        "activity": [1],
        "tokens": [10],
        "tokens_growth": [1],
    }
