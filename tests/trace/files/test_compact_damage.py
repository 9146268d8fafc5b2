"""Compact files that are damaged, cut short of sense, or none: one line each."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgspec
import pytest

from nanovllm.errors import TraceError
from nanovllm.trace.files.compact import files, parts
from nanovllm.trace.files.compact.columns import WORDS, pack_ints
from nanovllm.trace.files.compact.layout import Form
from nanovllm.trace.jsonl import read_trace, write_trace
from tests.trace.runs import preempting_run
from tests.trace.test_jsonl import HEADER, HEADER_LINE, SCHEMA

FIRST_LINE = b"nvtrace 1\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.nvtrace"


def test_damage_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_EVENTS", 20)
    events = preempting_run()
    write_trace(events, path)
    content = path.read_bytes()
    num_noticed = 0
    for place in range(len(FIRST_LINE), len(content), 7):
        path.write_bytes(content[:place] + bytes((content[place] ^ 0x55,)) + content[place + 1 :])
        try:
            trace = read_trace(path)
        except TraceError:
            num_noticed += 1
        else:  # in the header's text, or in a length: the file looks cut
            assert trace.events[1:] == events[1 : len(trace.events)]
    assert num_noticed > 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: a compact trace begins with 'nvtrace 1'"),
        (HEADER_LINE, "is no compact trace: a compact trace begins with 'nvtrace 1'; other traces are called"),
        (b"\x1f\x8b\x08" + bytes(99), "is no compact trace"),
        (b"nvtrace one\n", "is no compact trace"),
        (b"nvtrace 7\n{}\n", "is a compact trace of form 7, this version reads form 1: read it with a newer version"),
        (FIRST_LINE + HEADER_LINE.replace(SCHEMA, b'"schema":99'), "2: the trace has schema 99, this version reads"),
        (FIRST_LINE + HEADER_LINE.replace(SCHEMA, b'"schema":0'), "2: there is no schema 0"),
        (FIRST_LINE + b'{"type":"held","request":1,"reason":""}\n', "2: the first event is held: a trace begins"),
        (FIRST_LINE + b"[]\n", "2: is no event: a trace begins with"),
        (FIRST_LINE + b"\xff\n", "2: is not JSON"),
        (FIRST_LINE + HEADER_LINE + bytes((3, 0, 0, 0)) + b"abc", "is damaged behind event 1: "),
        (FIRST_LINE + HEADER_LINE + b"\xff\xff\xff\xff" + bytes(99), "is damaged behind event 1: "),
    ],
)
def test_what_is_no_compact_trace_is_refused_with_one_line(content: bytes, message: str, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def part_of(forms: list[int], words: list[object], columns: list[bytes]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(["columns", words, bytes(forms), columns]))


ADMITTED = [pack_ints([0])]
HELD = [pack_ints([0]), pack_ints([1])]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (part_of([99], [], []), "there is no form 99"),
        (part_of([Form.ADMITTED], ["a"], []), "0 columns, which are not those of its forms"),
        (part_of([Form.ADMITTED], ["a"], [*ADMITTED, b""]), "2 columns, which are not those of its forms"),
        (part_of([Form.ADMITTED], ["a"], [b""]), "a column without its head"),
        (part_of([Form.ADMITTED] * 2, ["a"], ADMITTED), "not a value for each of the 2 events"),
        (part_of([Form.HELD], ["a"], HELD), "a number that is none of its 1 words"),
        (part_of([Form.ADMITTED], ["a"], [pack_ints([-1])]), "a count or an index below 0"),
        (part_of([Form.BLOCKS_ALLOCATED_FORESEEN], ["a"], [*ADMITTED, pack_ints([-5])]), "an index below 0"),
        (part_of([Form.DECODE_SCHEDULED], ["a"], [WORDS.pack([[0, 1]])]), "a number that is none of its 1 words"),
        (part_of([Form.ADMITTED], ["a"], ADMITTED) + b"more", "a part of another length than it tells"),
        (part_of([Form.ADMITTED], ["a"], ADMITTED)[:-1], "a part of another length than it tells"),
        (zlib.compress(bytes(2**16 + 1)), "a part of another length than it tells"),
        (zlib.compress(b""), "Input data was truncated"),
    ],
)
def test_a_part_that_contradicts_itself_is_damaged(
    part: bytes, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MAX_PART_BYTES", 2**16)
    path.write_bytes(FIRST_LINE + HEADER_LINE + len(part).to_bytes(4, "little") + part)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: is damaged behind event 1: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["run.jsonl", "run.nvtrace.gz", "run"])
def test_a_compact_trace_of_another_name_is_told(name: str, path: Path) -> None:
    write_trace(preempting_run(), path)
    other, data = path.with_name(name), path.read_bytes()
    other.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(TraceError, match=r":1: is a compact trace, whose name ends in \.nvtrace"):
        read_trace(other)


def test_a_file_that_is_missing_is_an_error(path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file or directory"):
        read_trace(path)


def test_a_second_header_is_refused(path: Path) -> None:
    write_trace([HEADER, HEADER, *preempting_run()[1:]], path)
    with pytest.raises(TraceError, match="a second trace_started: a file holds one trace"):
        read_trace(path)
