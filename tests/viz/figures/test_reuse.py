"""What a prefix cache reuses, by size of the pool."""

from __future__ import annotations

import pytest

from nanovllm.errors import UserError
from tests.viz.figures.drawn import flaws, texts_of
from viz.figures import REUSE_PARTS, prefix_reuse

POOLS = {
    size: {"found": found, "last": 0.002, "not_computed": 0.0004, "evicted": 0.64 - 0.0024 - found}
    for size, found in ((400, 0.03), (1000, 0.06), (2000, 0.1), (16_000, 0.45), (20_000, 0.52), (64_000, 0.6376))
}


def test_bands_and_what_they_are_called() -> None:
    figure = prefix_reuse(POOLS, repeat_rate=0.64)
    assert flaws(figure) == []
    assert {
        "found in the cache",
        "last block of its prompt (at most 0.2%)",
        "not computed yet (less than 0.1%)",
        "evicted",
        "repeats in the prompts: 64.0%",
        "3.0% found with 400 blocks, 63.8% with 64,000",
        "2,000",
    } <= texts_of(figure)
    assert "other causes" not in texts_of(figure)


@pytest.mark.parametrize("size", [2, 3, 10_000])
def test_few_pools_and_every_cause(size: int) -> None:
    pools = {number: dict.fromkeys(REUSE_PARTS, 0.1) for number in (1, size)}
    figure = prefix_reuse(pools)
    assert flaws(figure) == []
    assert {label for _, label, _ in REUSE_PARTS.values()} <= texts_of(figure)


def test_nothing_at_all_is_drawn_as_nothing() -> None:
    assert flaws(prefix_reuse({10: {"found": 0.0}, 20: {"found": 0.0}}, repeat_rate=0.0)) == []


def test_one_pool_is_no_curve() -> None:
    with pytest.raises(UserError, match="from two or more of them, there is 1"):
        prefix_reuse({10: {"found": 0.5}})
