"""A sweep to look at: its table on the terminal, its figures in files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nanovllm.cli.console import print_line, print_table
from nanovllm.cli.cost_model import roofline_of, times_line
from nanovllm.cli.metrics_table import duration, significant
from nanovllm.cli.sweep_notes import is_search, print_notes
from nanovllm.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sim.sweeps import Row, Sweep, SweepResult

THROUGHPUT, LATENCY = "output_tokens_per_s", "time_to_first_token_p99_s"
MAX_GROUPS = 3
"""So many colours a figure has for values of a setting."""


def _per_second(value: float) -> str:
    return significant(value, 4)


def _share(value: float) -> str:
    return f"{value:.1%}"


def _change(value: float) -> str:
    return f"{value:+.1%}"


def _count(value: float) -> str:
    return f"{value:,}"


COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "highest_rate": ("highest rate", _per_second),
    "lowest_failing_rate": ("fails at", _per_second),
    "rate_drift": ("drift", _change),
    THROUGHPUT: ("output tokens/s", _per_second),
    "time_to_first_token_p50_s": ("first token p50", duration),
    LATENCY: ("p99", duration),
    "time_per_output_token_mean_s": ("per output token", duration),
    "inter_token_latency_p99_s": ("gap p99", duration),
    "slo_attainment": ("met the SLO", _share),
    "goodput_requests_per_s": ("goodput/s", _per_second),
    "hit_rate": ("hits", _share),
    "num_rejected": ("refused", _count),
    "num_preemptions": ("preemptions", _count),
    "peak_kv_use": ("KV peak", _share),
    "num_extrapolated_steps": ("extrapolated steps", _count),
}
"""Of a row: what the table shows, under which heading, and how. A column in which nothing is counted is left out."""


_RATES = ("highest_rate", "lowest_failing_rate")
"""Columns that count requests a second, as the setting ``rate`` does."""
_SPELLING = {"gpus": "GPUs", "kv": "KV", "slo": "SLO"}


def check_sort(sweep: Sweep, sort: str | None) -> None:
    """Raise ``ConfigError`` for what rows cannot be sorted by."""
    from sim.sweeps.table import columns_of

    columns = columns_of(sweep.names)
    if sort is not None and sort.removeprefix("-") not in columns:
        raise ConfigError("sort", sort, f"one of {', '.join(columns)}")


def print_rows(result: SweepResult, sort: str | None, limit: int) -> None:
    """A table of the rows: what varies, and how it went."""
    from rich.table import Table
    from rich.text import Text

    rows = _sorted(result.rows, sort)
    shown = [column for column in COLUMNS if _is_shown(column, rows)]
    table = Table(*result.sweep.varied, *(COLUMNS[column][0] for column in shown))
    for index, column in enumerate(table.columns):
        is_setting = index < len(result.sweep.varied)
        column.justify, column.no_wrap = ("left", True) if is_setting else ("right", False)
        column.min_width = max(map(len, str(column.header).split()))
    for row in rows[:limit]:
        settings = [Text(_told(row[name])) for name in result.sweep.varied]
        table.add_row(*settings, *(_cell(row, column) for column in shown))
    print_table(table)
    print_line(times_line(_sources_of_times(rows)))
    noun = "cell" if len(rows) == 1 else "cells"
    counts = [f"{len(rows):,} {noun}", f"{len(result.failed):,} failed" if result.failed else ""]
    counts += [f"{result.num_reused:,} from the store" if result.num_reused else ""]
    counts += [f"the first {limit:,} are shown" if len(rows) > limit else ""]
    print_line(", ".join(filter(None, counts)))
    print_notes(rows)


def _sources_of_times(rows: Sequence[Row]) -> Iterator[str]:
    """Each once, by what the rows set: the files of measured times need not be there any more."""
    from sim.engine_setup import DEFAULT_MODEL
    from sim.measured_times import DEFAULT_GPU

    for setting, words in (("calibration", "calibration"), ("table", "latency tables")):
        yield from dict.fromkeys(f"{words} {row[setting]}" for row in rows if row.get(setting) is not None)
    modelled = [row for row in rows if row.get("calibration") is None and row.get("table") is None]
    if modelled:
        cards = dict.fromkeys(row.get("gpu") or DEFAULT_GPU for row in modelled)
        yield roofline_of(cards, dict.fromkeys(row.get("model") or DEFAULT_MODEL for row in modelled))


def _is_shown(column: str, rows: Sequence[Row]) -> bool:
    if column == THROUGHPUT or any(row[column] for row in rows):
        return True
    return column == "highest_rate" and any(map(is_search, rows))


def _sorted(rows: list[Row], sort: str | None) -> list[Row]:
    """By a column, those without a value last."""
    if sort is None:
        return rows
    name = sort.removeprefix("-")
    told = [row for row in rows if row[name] is not None]
    return [
        *sorted(told, key=lambda row: row[name], reverse=sort.startswith("-")),
        *(row for row in rows if row[name] is None),
    ]


def _cell(row: Row, column: str) -> str:
    if row["status"] == "failed":
        return "failed" if column == THROUGHPUT else ""
    if column == "highest_rate" and row[column] is None and is_search(row):
        return "any"
    return "–" if row[column] is None else COLUMNS[column][1](row[column])


def _told(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class SweepFigures:
    """The pictures that are asked for, each by its file."""

    pareto: Path | None
    cliff: Path | None
    heatmap: Path | None
    routers: Path | None
    value: str | None
    """The column that the heatmap shows; None for ``LATENCY``."""

    @property
    def paths(self) -> list[Path]:
        """The files that are written."""
        return [path for path in (self.pareto, self.cliff, self.heatmap, self.routers) if path is not None]

    def check(self, sweep: Sweep) -> None:
        """Raise ``UserError`` for pictures that the sweep does not give, before it runs."""
        if self.value is not None and self.heatmap is None:
            raise ConfigError("value", self.value, "only together with heatmap")
        if not self.paths:
            return
        from viz.figures.plot import check_picture

        for path in self.paths:
            check_picture(path)
        if self.cliff is not None and "num_kvcache_blocks" not in sweep.varied:
            raise UserError("a cliff is drawn over num_kvcache_blocks: let it vary")
        if self.cliff is not None and (num_lines := _num_lines(sweep)) > MAX_GROUPS:
            raise UserError(f"cliffs are drawn as at most {MAX_GROUPS} lines: here are {num_lines}")
        if self.routers is not None and set(sweep.varied) != {"replicas", "router"}:
            raise UserError("routers are drawn over replicas: let router and replicas vary, and nothing else")
        if self.heatmap is not None:
            if len(sweep.varied) != 2:
                raise UserError(f"a heat map is drawn over two settings that vary, here are {len(sweep.varied)}")
            from sim.sweeps.figures import FIGURES

            if self.value not in (None, *FIGURES):
                raise ConfigError("value", self.value, f"one of {', '.join(FIGURES)}")

    def draw(self, result: SweepResult) -> None:
        """Write the pictures. Raises ``UserError`` if there is nothing to draw."""
        show_waits = any(path is not None for path in (self.pareto, self.cliff, self.routers))
        if show_waits and all(row[LATENCY] is None for row in result.rows):
            raise UserError("there is nothing to draw: in no cell was a request completed")
        drawings = (
            (self.pareto, _draw_pareto),
            (self.cliff, _draw_cliff),
            (self.heatmap, self._draw_heatmap),
            (self.routers, _draw_routers),
        )
        for path, draw in drawings:
            if path is not None:
                from viz.figures.plot import save

                save(draw(result), path)

    def _draw_heatmap(self, result: SweepResult) -> Any:
        from viz.figures import heatmap

        vertical, horizontal = result.sweep.varied
        shown = self.value or LATENCY
        values = {(_told(row[vertical]), _told(row[horizontal])): row[shown] for row in result.rows}
        rows = list(dict.fromkeys(row for row, _ in values))
        columns = list(dict.fromkeys(column for _, column in values))
        return heatmap(values, rows=rows, columns=columns, names=(vertical, horizontal), title=_in_words(shown))


def _in_words(column: str) -> str:
    """What stands in a column, with its unit: ``Time to first token p99, s``."""
    words = " ".join(_SPELLING.get(word, word) for word in column.removeprefix("num_").split("_"))
    words = words[0].upper() + words[1:]
    if column in _RATES:
        return f"{words}, requests/s"
    if column.endswith("_per_s"):
        return words.removesuffix(" per s") + "/s"
    return words.removesuffix(" s") + ", s" if column.endswith("_s") else words


def _draw_pareto(result: SweepResult) -> Any:
    from viz.figures import ParetoPoint, pareto

    rows = [row for row in result.rows if row[LATENCY] is not None]
    is_per_gpu = len({row["num_gpus"] for row in rows}) > 1
    group = _group_of(result.sweep, rows)
    varied = result.sweep.varied
    label_names = ", ".join(varied) if len(varied) > 1 else ""  # a single value is told with its name
    points = [
        ParetoPoint(
            label=", ".join(_told(row[name]) if label_names else f"{name} {_told(row[name])}" for name in varied),
            throughput=row[THROUGHPUT] / (row["num_gpus"] if is_per_gpu else 1),
            latency_s=row[LATENCY],
            group="" if group is None else f"{group} {_told(row[group])}",
        )
        for row in rows
    ]
    throughput = "output tokens/s per GPU" if is_per_gpu else "output tokens/s"
    return pareto(points, throughput=throughput, label_names=label_names)


def _draw_cliff(result: SweepResult) -> Any:
    from viz.figures import CliffPoint, pool_cliffs

    others = [name for name in result.sweep.varied if name != "num_kvcache_blocks"]
    lines: dict[str, list[CliffPoint]] = {}
    for row in result.rows:
        if row["status"] == "completed":
            point = CliffPoint(
                num_blocks=row["num_blocks"],
                num_preemptions=row["num_preemptions"],
                time_to_first_token_p99_s=row[LATENCY],
                output_tokens_per_s=row[THROUGHPUT],
                hit_rate=row["hit_rate"],
            )
            lines.setdefault(_label(row, others), []).append(point)
    return pool_cliffs(lines)


def _draw_routers(result: SweepResult) -> Any:
    from viz.figures import RoutingPoint, routing

    return routing(
        [
            RoutingPoint(
                router=row["router"],
                num_replicas=row["replicas"],
                hit_rate=row["hit_rate"],
                time_to_first_token_p50_s=row["time_to_first_token_p50_s"],
                time_to_first_token_p99_s=row[LATENCY],
                load_imbalance=row["load_imbalance"],
            )
            for row in result.rows
            if row["status"] == "completed"
        ]
    )


def _num_lines(sweep: Sweep) -> int:
    """How many combinations there are of what varies beside the size of the pool."""
    return math.prod(len(values) for axis, values in sweep.vary.items() if "num_kvcache_blocks" not in axis.split("+"))


def _label(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {_told(row[name])}" for name in names)


def _group_of(sweep: Sweep, rows: Sequence[Row]) -> str | None:
    """The setting that colours tell apart: the first with two or three values."""
    counts = {name: len({row[name] for row in rows}) for name in sweep.varied}
    return next((name for name, count in counts.items() if 1 < count <= MAX_GROUPS), None)
