"""Every option of a request: what is allowed, and in which words the rest is refused."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError

import pytest

from nanovllm.errors import ConfigError, UserError
from nanovllm.sampling_params import SamplingParams

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "wrong", "allowed"),
    [
        ("temperature", [-0.1, NAN, INFINITE, 10**400, "1", None, True], "a number from 0 (greedy) upward"),
        ("max_tokens", [0, -1, 2.0, "2", None, True], "a whole number from 1 upward"),
        ("top_k", [-2, 1.0, "1", None, True], "a whole number from 1 upward, or 0 or -1 for all tokens"),
        ("top_p", [0, -0.1, 1.1, NAN, "1", None, True], "a number above 0, at most 1"),
        ("min_p", [-0.1, 1.1, NAN, "0", None, True], "a number from 0 to 1"),
        ("seed", [-1, 1.0, "1", True], "a whole number from 0 upward, or none"),
        ("stop", ["", ["a", ""], [1], 7, b"a"], "texts of at least one character"),
        (
            "stop_token_ids",
            [7, [-1], [1.0], ["1"], [True], "ab", [2**32]],
            "token ids, whole numbers from 0 to 4294967295",
        ),
        ("ignore_eos", [1, 0, "no", None], "true or false"),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(field: str, wrong: list[object], allowed: str) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=f"^{field}=.* is not allowed: {re.escape(allowed)}$") as caught:
            SamplingParams(**{field: value})
        assert caught.value.field == field
        assert isinstance(caught.value, (UserError, ValueError))


@pytest.mark.parametrize(("field", "high"), [("max_tokens", 2**63 - 1), ("top_k", 2**63 - 1), ("seed", 2**64 - 1)])
def test_a_number_that_is_too_large_is_told_the_largest(field: str, high: int) -> None:
    assert getattr(SamplingParams(**{field: high}), field) == high
    with pytest.raises(ConfigError, match=rf"^{field}={high + 1} is not allowed: at most {high}$"):
        SamplingParams(**{field: high + 1})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [0, 0.0, 1, 100.0]),
        ("max_tokens", [1, 10**9]),
        ("top_k", [-1, 0, 1, 50]),
        ("top_p", [1, 1e-9, 0.5]),
        ("min_p", [0, 1, 0.5]),
        ("seed", [None, 0, 2**63]),
    ],
)
def test_the_ends_of_what_is_allowed(field: str, values: list[object]) -> None:
    for value in values:
        assert getattr(SamplingParams(**{field: value}), field) == value


@pytest.mark.parametrize(("stop", "texts"), [("end", ("end",)), (["a", "bc"], ("a", "bc")), ((), ()), (None, ())])
def test_stops_are_kept_as_a_tuple(stop: object, texts: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop == texts


@pytest.mark.parametrize(("ids", "kept"), [([3, 4], (3, 4)), (range(2), (0, 1)), ((), ()), (None, ())])
def test_stop_token_ids_are_kept_as_a_tuple(ids: object, kept: tuple[int, ...]) -> None:
    assert SamplingParams(stop_token_ids=ids).stop_token_ids == kept


def test_sampling_params_never_change() -> None:
    params = SamplingParams()
    with pytest.raises(FrozenInstanceError):
        params.max_tokens = 3
    assert hash(params) == hash(SamplingParams())
