"""What is packed comes out again, number by number."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import UserError
from tests.viz.web.states import unpack
from viz.web.columns import LARGEST, pack

numbers = st.integers(-LARGEST, LARGEST)


@given(st.dictionaries(st.text("ab", min_size=1), st.lists(st.one_of(st.integers(-3, 300), numbers))))
def test_columns_come_out_as_they_went_in(columns: dict[str, list[int]]) -> None:
    assert unpack(pack(columns)) == columns


@pytest.mark.parametrize(
    ("column", "kind"),
    [([], "u8"), ([0, 255], "u8"), ([256], "i32"), ([-1], "i32"), ([2**31], "f64"), ([-(2**31)], "f64")],
)
def test_the_narrowest_kind_is_chosen(column: list[int], kind: str) -> None:
    assert pack({"a": column})["layout"] == [["a", kind, len(column)]]


def test_a_number_that_javascript_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match=r"^frame\.step: 2251799813685249 is too large to be shown"):
        pack({"frame.step": [LARGEST + 1]})


def test_regular_columns_take_next_to_nothing() -> None:
    assert len(pack({"step": list(range(100_000))})["bytes"]) < 300
