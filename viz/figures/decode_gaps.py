"""How long requests wait between two of their tokens, under several policies: for all of a run, and in a burst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nanovllm.errors import UserError
from nanovllm.trace.events import RequestId
from viz import palette
from viz.durations import duration
from viz.figures.canvas import MUTED, SMALL_PT, Key, count_whole, figure_of, heading, new_figure, style
from viz.figures.history import FloatArray, IntArray, Source
from viz.figures.token_times import RequestTokens, TokenTimes, token_times_of
from viz.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STALL_S = 0.2
"""From this gap on a request counts as stalled: a text that comes slower can be read along without haste."""
MAX_POINTS = 1500
"""A curve with more gaps shows every so many of them, evenly on its logarithmic axes."""
_BEFORE, _AFTER = 0.25, 0.75
"""A burst is shown from before the longest gap to after it, for these parts of its length."""
_MAX_COLUMNS = 1600


@dataclass(frozen=True)
class Span:
    """What one request does from ``start_s`` to ``end_s``, in row ``row`` of a burst."""

    row: int
    start_s: float
    end_s: float
    look: Look


@dataclass(frozen=True)
class Burst:
    """A few seconds of a run: a row for each request that is there, the same in every run of the load."""

    label: str
    window_s: tuple[float, float]
    num_rows: int
    spans: list[Span]

    def seconds(self, look: Look) -> float:
        """Of all rows together, spent like this."""
        return sum(span.end_s - span.start_s for span in self.spans if span.look is look)


def gap_tail(gaps_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of gaps in ascending order: lengths in seconds, and which share of all gaps is as long or longer."""
    shares = 1 - np.arange(len(gaps_s)) / len(gaps_s)
    wanted = np.geomspace(1, len(gaps_s), MAX_POINTS)
    kept = np.unique(np.concatenate(([0], len(gaps_s) - np.unique(wanted.round().astype(np.int64)))))
    return gaps_s[kept], shares[kept]


def burst_data(
    runs: Sequence[TokenTimes], window_s: tuple[float, float] | None = None, stall_s: float = STALL_S
) -> list[Burst]:
    """What each run does in these seconds; by default, around the longest gap of the first. Raises ``UserError`` if
    nothing happens then."""
    window_s = _around_longest_gap(runs[0]) if window_s is None else window_s
    present = [tokens for run in runs for tokens in run.requests if _is_there(tokens, window_s)]
    if not present:
        raise UserError(f"no request is there from {window_s[0]:g} to {window_s[1]:g} s")
    in_order = sorted(present, key=lambda tokens: tokens.arrival_s)
    rows = {request: row for row, request in enumerate(dict.fromkeys(tokens.request for tokens in in_order))}
    return [
        Burst(
            run.label,
            window_s,
            len(rows),
            [span for tokens in run.requests for span in _spans(tokens, rows, window_s, stall_s)],
        )
        for run in runs
    ]


def _around_longest_gap(run: TokenTimes) -> tuple[float, float]:
    longest = run.longest_gap()
    if longest is None:
        raise UserError(f"{run.label}: there is no gap, as no request got two tokens")
    length_s = longest[1] - longest[0]
    return max(0.0, longest[0] - _BEFORE * length_s), longest[1] + _AFTER * length_s


def _is_there(tokens: RequestTokens, window_s: tuple[float, float]) -> bool:
    return bool(tokens.times_s) and tokens.arrival_s < window_s[1] and tokens.times_s[-1] > window_s[0]


def _spans(
    tokens: RequestTokens, rows: dict[RequestId, int], window_s: tuple[float, float], stall_s: float
) -> list[Span]:
    if tokens.request not in rows or not tokens.times_s:
        return []
    row = rows[tokens.request]
    times_s = [tokens.arrival_s, *tokens.times_s]
    spans: list[Span] = []
    for index, (start_s, end_s) in enumerate(pairwise(times_s)):
        if end_s <= window_s[0] or start_s >= window_s[1]:
            continue
        look = palette.WAITING if index == 0 else palette.STALLED if end_s - start_s >= stall_s else palette.DECODE
        start_s, end_s = max(start_s, window_s[0]), min(end_s, window_s[1])
        if spans and spans[-1].look is look is palette.DECODE:
            spans[-1] = Span(row, spans[-1].start_s, end_s, look)
        else:
            spans.append(Span(row, start_s, end_s, look))
    return spans


def decode_gaps(
    runs: Sequence[Source | TokenTimes],
    *,
    labels: Sequence[str] = (),
    attainments: Sequence[float] = (),
    window_s: tuple[float, float] | None = None,
    stall_s: float = STALL_S,
) -> Figure:
    """Above, which share of the gaps between two tokens of a request is how long, in runs of one load. Below, a burst
    in each run, a line a request: waiting for its first token, getting tokens, stalled for ``stall_s`` or more.

    ``labels``: what the runs are called, by default their policies. ``attainments``: of each run, if something was
    promised, the share of all requests that got it, from 0 to 1; told beside what it is called. ``window_s``: which
    seconds are shown of the runs, by default those around the longest gap of the first. Raises ``UserError`` if there
    is nothing to show, or more runs than colours.
    """
    if not 1 <= len(runs) <= len(palette.SERIES):
        raise UserError(f"gaps are drawn of 1 to {len(palette.SERIES)} runs, not {len(runs)}")
    named = [*labels, *[""] * (len(runs) - len(labels))]
    times = [token_times_of(run, label) for run, label in zip(runs, named, strict=True)]
    bursts = burst_data(times, window_s, stall_s)
    titles = [burst.label for burst in bursts]
    if attainments:
        told = zip(titles, attainments, strict=True)
        titles = [f"{title}: {share:.1%} of all requests met the SLO" for title, share in told]
    sheet = new_figure(height_in=3.4 + 2.5 * len(runs))
    grid = sheet.add_gridspec(1 + len(runs), 1, height_ratios=[3.2, *[2.4] * len(runs)])
    upper = sheet.add_subplot(grid[0])
    _draw_tails(upper, times, stall_s)
    for index, (burst, title) in enumerate(zip(bursts, titles, strict=True)):
        ax = sheet.add_subplot(grid[1 + index])
        _draw_burst(ax, burst, title, stall_s, is_first=index == 0, is_last=index == len(bursts) - 1)
    return figure_of(upper)


def _draw_tails(ax: Axes, runs: Sequence[TokenTimes], stall_s: float) -> None:
    style(ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    num_gaps = 0
    keys: list[Key] = []
    for (gaps_s, labels), look in zip(_equal_ones_together(runs), palette.SERIES, strict=False):
        num_gaps = max(num_gaps, len(gaps_s))
        lengths_s, shares = gap_tail(gaps_s)
        ax.plot(lengths_s, shares, color=look.light, linewidth=1.8, zorder=3)
        p99_s, longest_s = float(np.quantile(gaps_s, 0.99)), float(gaps_s[-1])
        ax.plot(p99_s, 0.01, "o", color=look.light, markersize=5, zorder=4)
        told = f"{' and '.join(labels)}: p99 {duration(p99_s)}, longest {duration(longest_s)}"
        keys.append(Key(look, told, thickness=0.2))
    ax.axvline(stall_s, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    ax.annotate(
        f" {duration(stall_s)}",
        (stall_s, 1.0),
        xycoords=("data", "axes fraction"),
        fontsize=SMALL_PT,
        color=MUTED,
        va="top",
    )
    ax.set_ylim(0.7 / num_gaps, 1.4)
    ax.xaxis.set_major_formatter(lambda value, _: duration(value))
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlabel("time between two tokens of a request")
    ax.set_ylabel("share of gaps this long or longer")
    heading(ax, "Gaps between tokens", keys, note=f"{num_gaps:,} gaps in each run")


def _equal_ones_together(runs: Sequence[TokenTimes]) -> list[tuple[FloatArray, list[str]]]:
    """The gaps of the runs, and what each is called; runs with the same gaps, which have one curve, are one entry."""
    curves: list[tuple[FloatArray, list[str]]] = []
    for run in runs:
        gaps_s = run.gaps_s()
        for others_s, labels in curves:
            if np.array_equal(gaps_s, others_s):
                labels.append(run.label)
                break
        else:
            curves.append((gaps_s, [run.label]))
    return curves


def _draw_burst(ax: Axes, burst: Burst, title: str, stall_s: float, *, is_first: bool, is_last: bool) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import ScalarFormatter

    style(ax)
    looks = (palette.GROUND, *palette.READING)
    ax.imshow(
        _pixels(burst),
        cmap=ListedColormap([look.light for look in looks]),
        vmin=0,
        vmax=len(looks) - 1,
        extent=(*burst.window_s, burst.num_rows, 0),
        aspect="auto",
        interpolation="nearest",
    )
    ax.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    count_whole(ax.yaxis)
    ax.set_ylabel("requests, by arrival")
    if is_last:
        ax.set_xlabel("time, s")
    keys = [
        Key(palette.WAITING, "waits for its first token"),
        Key(palette.DECODE, "gets tokens"),
        Key(palette.STALLED, f"got no token for {duration(stall_s)} or more"),
    ]
    stalled_s, got_s = burst.seconds(palette.STALLED), burst.seconds(palette.DECODE)
    share = stalled_s / (stalled_s + got_s) if stalled_s + got_s else 0.0
    note = f"after their first token, requests are stalled {share:.0%} of the time"
    heading(ax, title, keys if is_first else (), note=note)


def _pixels(burst: Burst) -> IntArray:
    """A row a request, a column a moment: indices of looks. What is shorter than a column fills one."""
    start_s, end_s = burst.window_s
    pixels = np.zeros((burst.num_rows, _MAX_COLUMNS), np.int64)
    columns_per_s = _MAX_COLUMNS / (end_s - start_s)
    for number, look in enumerate(palette.READING, start=1):
        for span in burst.spans:
            if span.look is look:
                first = min(int((span.start_s - start_s) * columns_per_s), _MAX_COLUMNS - 1)
                last = max(first + 1, round((span.end_s - start_s) * columns_per_s))
                pixels[span.row, first:last] = number
    return pixels
