"""Errors as they are told, and as they go from one process to another."""

from __future__ import annotations

import pickle

import pytest

from nanovllm.errors import ConfigError, ContradictionError, FileError, NanoVllmError, RequestError, UserError


@pytest.mark.parametrize(
    "error",
    [
        UserError("plain"),
        ConfigError("limit", "x" * 100, "a number"),
        RequestError("too_long", "request 3 is too long", 7, 5),
        FileError("a file", "is empty", 3),
        ContradictionError("run.jsonl", "ends before it begins", 9, "order", 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_to_another_process(error: NanoVllmError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
