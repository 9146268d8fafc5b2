"""No meaning rests on hue alone: colours of a group stay apart for colour-blind readers, and each has its own glyph."""

from __future__ import annotations

from itertools import combinations

import pytest

from viz import palette
from viz.palette import Look

Matrix = tuple[tuple[float, float, float], ...]

# What a reader without one kind of cone sees, in linear RGB: Machado, Oliveira, Fernandes 2009, severity 1.0.
READERS: dict[str, Matrix] = {
    "full vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Drawn as a thin line, not as a bar, so it may be close to a grey of another shape.
ACTIVITIES = [look for look in palette.ACTIVITIES if look is not palette.IDLE]
GROUPS = {
    "activities": ACTIVITIES,
    "blocks": list(palette.BLOCKS),
    "reading": list(palette.READING),
    "series": list(palette.SERIES),
}
CLEARLY_APART = 15.0
"""CIE76 distance; 2.3 is just noticeable."""


def linear_rgb(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = rgb

    def f(t: float) -> float:
        return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116

    x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047)
    y = f(0.2126 * r + 0.7152 * g + 0.0722 * b)
    z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, reader: Matrix) -> tuple[float, float, float]:
    rgb = linear_rgb(colour)
    return lab([min(1.0, max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True)))) for row in reader])


def contrast(a: str, b: str) -> float:
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear_rgb, (a, b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("group", GROUPS)
def test_colours_of_a_group_stay_apart(group: str, reader: str, ground: str) -> None:
    for a, b in combinations(GROUPS[group], 2):
        colours = [seen(getattr(look, ground), READERS[reader]) for look in (a, b)]
        distance = sum((p - q) ** 2 for p, q in zip(*colours, strict=True)) ** 0.5
        assert distance >= CLEARLY_APART, f"{a.name} and {b.name} look alike"


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_text_and_activities_stand_out_from_the_ground(ground: str) -> None:
    def against_ground(look: Look) -> float:
        return contrast(getattr(look, ground), getattr(palette.GROUND, ground))

    assert against_ground(palette.INK) >= 7
    assert against_ground(palette.MUTED) >= 4.5
    assert all(against_ground(look) >= 3 for look in (*ACTIVITIES, *palette.READING, *palette.SERIES))


@pytest.mark.parametrize(
    "group", [palette.ACTIVITIES, palette.PROGRESS, palette.BLOCKS, palette.READING, palette.SERIES]
)
def test_each_meaning_of_a_group_has_its_own_glyph_and_letter(group: tuple[Look, ...]) -> None:
    assert len({look.glyph for look in group}) == len(group)
    assert len({look.letter for look in group}) == len(group)
    assert all(len(look.glyph) == 1 and look.letter.isascii() for look in group)
