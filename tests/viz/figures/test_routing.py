"""Routers over numbers of replicas."""

from __future__ import annotations

import pytest

from nanovllm.errors import UserError
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import RoutingPoint, routing


def points(*routers: str, counts: tuple[int, ...] = (2, 4, 8)) -> list[RoutingPoint]:
    return [
        RoutingPoint(
            router=router,
            num_replicas=count,
            hit_rate=0.1 * index + 0.02 * count,
            time_to_first_token_p50_s=0.01 * (index + 1) / count,
            time_to_first_token_p99_s=None if count == 4 else 3.0 * (index + 1) / count,
            load_imbalance=1 + 0.1 * count,
        )
        for index, router in enumerate(routers)
        for count in counts
    ]


@pytest.mark.parametrize("routers", [("one",), ("round_robin", "least_loaded", "prefix_aware")])
def test_each_router_is_a_line(routers: tuple[str, ...]) -> None:
    figure = routing(points(*routers))
    assert flaws(figure) == []
    assert {*routers, "Found in prefix caches", "Time to first token", "Load of the fullest replica"} <= texts_of(
        figure
    )
    hits, waits, imbalance = figure.axes
    assert [len(ax.lines) for ax in (hits, waits, imbalance)] == [len(routers), 2 * len(routers), len(routers)]
    assert hits.lines[0].get_xdata().tolist() == [2, 4, 8]  # type: ignore[union-attr]
    assert waits.lines[0].get_xdata().tolist() == [2, 8], "a run without a completed request is left out"  # type: ignore[union-attr]


def test_the_order_of_points_does_not_matter() -> None:
    lines = [routing(given).axes[0].lines[0].get_ydata() for given in (points("a"), points("a")[::-1])]
    assert list(lines[0]) == list(lines[1])


def test_what_cannot_be_told_apart_is_refused() -> None:
    for wrong, problem in (
        ([], "routers are drawn as 1 to 3 lines, not 0"),
        (points("a", "b", "c", "d"), "routers are drawn as 1 to 3 lines, not 4"),
        (points("a") * 2, "two runs have the same router and number of replicas: each may come once"),
    ):
        with pytest.raises(UserError, match=problem):
            routing(wrong)
