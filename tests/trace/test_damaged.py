"""Whatever a file says, all that reads traces ends with a result or with an error that a user understands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from nanovllm.errors import TraceError
from nanovllm.trace.check import check
from nanovllm.trace.diff import diff
from nanovllm.trace.events import AnyEvent
from nanovllm.trace.jsonl import read_trace
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.perfetto import to_chrome_trace
from nanovllm.trace.text import to_text
from nanovllm.trace.timeline import Timeline
from tests.trace.damaged import LINES, damaged_traces, wrong_values
from tests.trace.runs import preempting_run

READERS: dict[str, Callable[[list[AnyEvent]], Any]] = {
    "text": lambda events: list(to_text(events)),
    "check": check,
    "metrics": compute_metrics,
    "perfetto": to_chrome_trace,
    "timeline": Timeline,
    "diff": lambda events: str(diff(preempting_run(), events)),
}


@contextmanager
def refused() -> Iterator[None]:
    """What is refused is refused in one line."""
    problem = ""
    try:
        yield
    except TraceError as error:
        problem = str(error)
    assert "\n" not in problem


@given(data=damaged_traces())
@settings(max_examples=300)
def test_a_damaged_trace(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("damaged") / "run.jsonl"
    path.write_bytes(data)
    events: list[AnyEvent] = []
    with refused():
        events = read_trace(path).events
    for read in READERS.values():
        with refused():
            read(events)


def test_any_value_in_place_of_any_other(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for data in wrong_values():
        path.write_bytes(data)
        for read in READERS.values():
            with refused():
                read(read_trace(path).events)


NESTED = b"[" * 10**5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (LINES[0].replace(b'"num_blocks":4', b'"num_blocks":' + NESTED) + b"\n", "1: is not JSON"),
        (NESTED, "1: is not JSON"),
        (LINES[0] + b"\n" + NESTED + b"\n" + LINES[1], "2: is not JSON"),
        (LINES[0] + b"\n" + LINES[1].replace(b"0", b"1" * 10**4, 1) + b"\n" + LINES[2], "2: is "),
        (LINES[0] + b"\n\xff\xfe\n" + LINES[1], "2: is not JSON"),
        (b"\x00" * 1000, "1: is not JSON"),
        (b"\n\n", "1: is not JSON"),
    ],
)
def test_a_line_that_is_no_event_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:{message}")
    assert len(str(caught.value)) < 500
