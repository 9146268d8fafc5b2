"""Workload files: what is written is read back, and every mistake is named by file, line, field and value."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.errors import WorkloadError
from sim.workload import WorkloadRequest, in_order_of_arrival, iter_workload, read_workload, write_workload

lengths = st.integers(1, 100_000)
token_ids = st.integers(0, 2**32 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def workload_requests(draw: st.DrawFn, id: str | int, by_step: bool, above: list[str | int]) -> WorkloadRequest:
    fields: dict[str, Any] = {"id": id, "max_tokens": draw(lengths)}
    kind = draw(st.sampled_from(["prompt", "prompt_len", "prefix", "text"]))
    if kind == "prompt":
        fields["prompt"] = draw(st.lists(token_ids, min_size=1, max_size=20))
    elif kind == "text":
        fields["text"] = draw(names)
    else:
        fields["prompt_len"] = draw(lengths)
        if kind == "prefix":
            fields |= {"prefix": draw(names), "prefix_len": draw(st.integers(0, fields["prompt_len"]))}
    fields["ignore_eos"] = draw(st.booleans())
    if not fields["ignore_eos"]:
        fields["output_len"] = draw(st.none() | st.integers(1, fields["max_tokens"]))
    if by_step:
        fields["arrival_step"] = draw(st.none() | st.integers(0, 1000))
    elif above and draw(st.booleans()):
        fields["after"] = draw(st.lists(st.sampled_from(above), min_size=1, max_size=3, unique=True))
        fields["delay"] = draw(st.floats(0, 1e9))
    else:
        fields["arrival"] = draw(st.none() | st.floats(0, 1e9))
    fields |= {
        "temperature": draw(st.floats(0, 10)),
        "top_k": draw(st.integers(-1, 1000)),
        "top_p": draw(st.floats(0.001, 1)),
        "min_p": draw(st.floats(0, 1)),
        "seed": draw(st.none() | st.integers(0, 2**63 - 1)),
        "stop": draw(st.lists(names, max_size=3)),
        "stop_token_ids": draw(st.lists(token_ids, max_size=3)),
    }
    return WorkloadRequest(**fields)


@st.composite
def workloads(draw: st.DrawFn) -> list[WorkloadRequest]:
    ids = draw(st.lists(names | st.integers(0, 2**63 - 1), min_size=1, max_size=6, unique_by=str))
    by_step = draw(st.booleans())
    return [draw(workload_requests(name, by_step, ids[:place])) for place, name in enumerate(ids)]


@given(workload=workloads(), suffix=st.sampled_from([".jsonl", ".jsonl.gz"]))
def test_what_is_written_is_read_back(
    workload: list[WorkloadRequest], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("workload") / f"load{suffix}"
    write_workload(path, workload)
    assert read_workload(path, allow_text=True) == in_order_of_arrival(workload)
    first = path.read_bytes()
    write_workload(path, in_order_of_arrival(workload))
    assert list(iter_workload(path, allow_text=True)) == in_order_of_arrival(workload)
    write_workload(path, workload)
    assert path.read_bytes() == first


def write_lines(path: Path, *lines: str | dict[str, Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_requests_are_sorted_by_arrival_and_stay_in_order_otherwise(tmp_path: Path) -> None:
    times = {"a": 2.0, "b": 0.5, "c": 2.0, "d": 0.5, "e": 0}
    lines = [{"id": name, "prompt_len": 1, "max_tokens": 1, "arrival": time} for name, time in times.items()]
    path = write_lines(tmp_path / "load.jsonl", *lines, "")
    assert [request.id for request in read_workload(path)] == ["e", "b", "d", "a", "c"]


def test_a_file_is_streamed_only_in_order(tmp_path: Path) -> None:
    lines = [{"id": i, "prompt_len": 1, "max_tokens": 1, "arrival": time} for i, time in enumerate((0, 2, 1))]
    path = write_lines(tmp_path / "load.jsonl", *lines)
    requests = iter_workload(path)
    assert [next(requests).id, next(requests).id] == [0, 1]
    with pytest.raises(WorkloadError, match=r"load\.jsonl:3: request 2 arrives before 1"):
        next(requests)


def test_defaults_are_those_of_sampling(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "load.jsonl", {"id": "a", "prompt": [1, 2], "max_tokens": 3, "stop": "END"})
    [request] = read_workload(path)
    assert request == WorkloadRequest(id="a", prompt=[1, 2], max_tokens=3, stop=("END",))
    assert (request.temperature, request.top_p, request.arrival, request.num_prompt_tokens) == (1.0, 1.0, None, 2)


GOOD = {"id": 0, "prompt_len": 4, "max_tokens": 2}


def given_as(**prompt: Any) -> dict[str, Any]:
    return {"id": 0, "max_tokens": 1, **prompt}


MISTAKES: dict[str, tuple[Any, str]] = {
    "not JSON": ("{", "is not JSON"),
    "no object": ("[1, 2]", "holds a list: a JSON object is needed"),
    "not UTF-8": ('{"id": "\udcff"}', "is not JSON"),
    "deep nesting": ("[" * 100_000, "is not JSON"),
    "unknown field": ({**GOOD, "max_token": 3}, "max_token=3 is not allowed: there is no such field; the fields are"),
    "no id": ({"prompt_len": 4, "max_tokens": 2}, "id is missing: every request needs it"),
    "no max_tokens": ({"id": 0, "prompt_len": 4}, "max_tokens is missing: every request needs it"),
    "no prompt": (given_as(), "prompt=None is not allowed: one of prompt, prompt_len and text is needed"),
    "id of a wrong type": ({**GOOD, "id": 1.5}, "id=1.5 is not allowed: text of at least one character, or a whole"),
    "id that is no number": ({**GOOD, "id": True}, "id=True is not allowed"),
    "empty id": ({**GOOD, "id": ""}, "id='' is not allowed"),
    "negative length": ({**GOOD, "prompt_len": -4}, "prompt_len=-4 is not allowed: a whole number from 1 upward"),
    "length 0": ({**GOOD, "prompt_len": 0}, "prompt_len=0 is not allowed: a whole number from 1 upward"),
    "length that is a float": ({**GOOD, "prompt_len": 4.0}, "prompt_len=4.0 is not allowed: a whole number from 1"),
    "length that is text": ({**GOOD, "prompt_len": "4"}, "prompt_len='4' is not allowed: a whole number from 1"),
    "max_tokens 0": ({**GOOD, "max_tokens": 0}, "max_tokens=0 is not allowed: a whole number from 1 upward"),
    "max_tokens null": ({**GOOD, "max_tokens": None}, "max_tokens=None is not allowed: a whole number from 1"),
    "two prompts": ({**GOOD, "prompt": [1]}, "prompt_len=4 is not allowed: prompt is there already"),
    "prompt and text": (given_as(prompt=[1], text="Hi"), "text='Hi' is not allowed: prompt is there already"),
    "empty prompt": (given_as(prompt=[]), "prompt=[] is not allowed: a list of one or more token ids, whole numbers"),
    "prompt of text": (given_as(prompt="word " * 100), "prompt='word word word word word wo..."),
    "huge id": ({**GOOD, "id": 2**63}, "id=9223372036854775808 is not allowed: at most 9223372036854775807"),
    "huge prompt": (given_as(prompt_len=10**12), "prompt_len=1000000000000 is not allowed: at most 16777216"),
    "huge max_tokens": ({**GOOD, "max_tokens": 10**30}, f"max_tokens={10**30} is not allowed: at most {2**63 - 1}"),
    "huge arrival": ({**GOOD, "arrival": 1e300}, "arrival=1e+300 is not allowed: at most 1000000000 seconds"),
    "arrival that no float holds": (
        '{"id": 0, "prompt_len": 4, "max_tokens": 2, "arrival": 1' + "0" * 400 + "}",
        "arrival=1000000000000000000000000000...00000000000000000000000000000 is not allowed: a number of seconds",
    ),
    "infinite arrival": ('{"id": 0, "prompt_len": 4, "max_tokens": 2, "arrival": 1e400}', "arrival=inf is not allowed"),
    "arrival that is no number": (
        '{"id": 0, "prompt_len": 4, "max_tokens": 2, "arrival": NaN}',
        "arrival=nan is not allowed",
    ),
    "huge step": ({**GOOD, "arrival_step": 2**63}, "arrival_step=9223372036854775808 is not allowed: at most"),
    "huge seed": ({**GOOD, "seed": 2**64}, "seed=18446744073709551616 is not allowed: at most 18446744073709551615"),
    "huge unknown field": ({**GOOD, "x" * 10**5: 1}, "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    "unknown field with a line break": ({**GOOD, "a\nb\x1b[31m": 1}, r"'a\nb\x1b[31m'=1 is not allowed"),
    "huge value of an unknown field": ({**GOOD, "y": "x" * 10**5}, "y='xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxx"),
    "float among the ids": (given_as(prompt=[1, 2.5]), "prompt=2.5 is not allowed: a list of token ids"),
    "bool among the ids": (given_as(prompt=[1, True]), "prompt=True is not allowed: a list of token ids"),
    "negative token id": (given_as(prompt=[-1]), "prompt=-1 is not allowed: a list of token ids"),
    "large token id": (given_as(prompt=[2**32]), "prompt=4294967296 is not allowed: a list of token ids"),
    "text without a tokenizer": (given_as(text="Hi"), "text is not allowed: without a tokenizer"),
    "prefix without its length": ({**GOOD, "prefix": "p"}, "prefix_len=None is not allowed: prefix needs it"),
    "prefix_len without a name": ({**GOOD, "prefix_len": 2}, "prefix=None is not allowed: text of at least one"),
    "prefix longer than the prompt": (
        {**GOOD, "prefix": "p", "prefix_len": 5},
        "prefix_len=5 is not allowed: at most prompt_len=4",
    ),
    "prefix of given ids": (
        given_as(prompt=[1, 2], prefix="p", prefix_len=1),
        "prefix='p' is not allowed: only together with prompt_len",
    ),
    "negative arrival": ({**GOOD, "arrival": -0.5}, "arrival=-0.5 is not allowed: a number of seconds from 0 upward"),
    "arrival that is text": ({**GOOD, "arrival": "noon"}, "arrival='noon' is not allowed: a number of seconds from 0"),
    "two arrivals": ({**GOOD, "arrival": 1, "arrival_step": 1}, "arrival_step=1 is not allowed: not together with"),
    "after and arrival": ({**GOOD, "after": "fine", "arrival": 1}, "arrival=1 is not allowed: not together with after"),
    "after and a step": ({**GOOD, "after": "fine", "arrival_step": 1}, "arrival_step=1 is not allowed: not together"),
    "after an unknown id": ({**GOOD, "after": "x"}, "after='x' is not allowed: the id of a request that stands before"),
    "after itself": ({**GOOD, "after": ["fine", 0]}, "after=0 is not allowed: other requests, each once"),
    "after the same twice": ({**GOOD, "after": ["fine", "fine"]}, "after='fine' is not allowed: other requests, each"),
    "after what is no id": ({**GOOD, "after": ["fine", 1.5]}, "after=1.5 is not allowed: text of at least one"),
    "after a list in a list": ({**GOOD, "after": [["fine"]]}, "after=['fine'] is not allowed: text of at least one"),
    "negative delay": ({**GOOD, "after": "fine", "delay": -1}, "delay=-1 is not allowed: a number of seconds from 0"),
    "huge delay": ({**GOOD, "after": "fine", "delay": 1e300}, "delay=1e+300 is not allowed: at most 1000000000"),
    "delay that is text": ({**GOOD, "after": "fine", "delay": "a day"}, "delay='a day' is not allowed: a number of"),
    "delay after nothing": ({**GOOD, "delay": 2}, "delay=2 is not allowed: only together with after"),
    "priority that is a float": (
        {**GOOD, "priority": 0.5},
        "priority=0.5 is not allowed: a whole number from -1000000",
    ),
    "huge priority": ({**GOOD, "priority": 10**9}, "priority=1000000000 is not allowed: at most 1000000"),
    "negative step": ({**GOOD, "arrival_step": -1}, "arrival_step=-1 is not allowed: a whole number from 0 upward"),
    "step that is a float": ({**GOOD, "arrival_step": 1.5}, "arrival_step=1.5 is not allowed: a whole number from 0"),
    "output_len 0": ({**GOOD, "output_len": 0}, "output_len=0 is not allowed: a whole number from 1 upward"),
    "output_len above max_tokens": ({**GOOD, "output_len": 3}, "output_len=3 is not allowed: at most max_tokens=2"),
    "output_len with ignore_eos": (
        {**GOOD, "output_len": 1, "ignore_eos": True},
        "output_len=1 is not allowed: not with ignore_eos",
    ),
    "temperature": ({**GOOD, "temperature": -1}, "temperature=-1 is not allowed: a number from 0"),
    "top_p": ({**GOOD, "top_p": 0}, "top_p=0 is not allowed: a number above 0, at most 1"),
    "top_k": ({**GOOD, "top_k": 1.5}, "top_k=1.5 is not allowed: a whole number"),
    "seed": ({**GOOD, "seed": -1}, "seed=-1 is not allowed: a whole number from 0 upward, or none"),
    "stop": ({**GOOD, "stop": [""]}, "stop=('',) is not allowed: texts of at least one character"),
    "stop that is a number": ({**GOOD, "stop": 7}, "stop=7 is not allowed: texts"),
    "stop id that is text": ({**GOOD, "stop_token_ids": ["7"]}, "stop_token_ids=('7',) is not allowed: token ids"),
    "ignore_eos": ({**GOOD, "ignore_eos": 1}, "ignore_eos=1 is not allowed: true or false"),
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_file_and_line(tmp_path: Path, line: Any, message: str) -> None:
    path = tmp_path / "load.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(json.dumps({**GOOD, "id": "fine"}).encode() + b"\n\n" + text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:3: {message}")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({**GOOD}, "id=0 is not allowed: line 1 has it already"),
        ({**GOOD, "id": "0"}, "id='0' is not allowed: line 1 has it already"),
        ({**GOOD, "id": 1, "arrival": 2.5}, "arrival=2.5 is not allowed: line 1 has arrival_step"),
        ({**GOOD, "id": 1, "after": 0}, "after=(0,) is not allowed: line 1 has arrival_step"),
    ],
)
def test_a_line_is_at_odds_with_an_earlier_one(tmp_path: Path, second: dict[str, Any], message: str) -> None:
    path = write_lines(tmp_path / "load.jsonl", {**GOOD, "arrival_step": 0}, second)
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


def test_what_is_waited_for_stands_above(tmp_path: Path) -> None:
    waiting = {**GOOD, "id": 1, "after": 0}
    path = write_lines(tmp_path / "load.jsonl", waiting, GOOD)
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    allowed = "the id of a request that stands before it and arrives in seconds"
    assert str(caught.value) == f"{path}:1: after=0 is not allowed: {allowed}"
    path = write_lines(tmp_path / "load.jsonl", GOOD, waiting, {**GOOD, "id": 2, "arrival_step": 1})
    with pytest.raises(WorkloadError, match=r":3: arrival_step=1 is not allowed: line 2 has after, and a workload has"):
        read_workload(path)


def test_what_waits_stands_behind_the_last_it_waits_for(tmp_path: Path) -> None:
    early, late = {**GOOD, "id": "early"}, {**GOOD, "id": "late", "arrival": 5}
    waiting = {**GOOD, "id": "waiting", "after": "early"}
    both = {**GOOD, "id": "both", "after": ["waiting", "late"], "delay": 1.5}
    path = write_lines(tmp_path / "load.jsonl", early, late, waiting, both)
    requests = read_workload(path)
    assert [request.id for request in requests] == ["early", "waiting", "late", "both"]
    assert [(request.after, request.delay) for request in requests[1::2]] == [
        (("early",), 0),
        (("waiting", "late"), 1.5),
    ]
    with pytest.raises(WorkloadError, match=r":3: request 'waiting' waits for some that arrive before 'late', but"):
        list(iter_workload(path))
    write_workload(path, requests)
    assert list(iter_workload(path)) == requests


@pytest.mark.parametrize("name", ["load.jsonl", "load.jsonl.gz"])
def test_a_mark_of_utf8_and_windows_line_ends_are_no_mistakes(tmp_path: Path, name: str) -> None:
    data = b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n" + json.dumps({**GOOD, "id": 1}).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert [request.id for request in read_workload(tmp_path / name)] == [0, 1]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="there is no such file"):
        read_workload(tmp_path / "none.jsonl")
    with pytest.raises(WorkloadError, match=rf"^{tmp_path}: cannot be read: Is a directory$"):
        read_workload(tmp_path)
    empty = write_lines(tmp_path / "empty.jsonl", "", "  ")
    with pytest.raises(WorkloadError, match="holds no request"):
        read_workload(empty)


def test_a_damaged_gz_file(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl.gz"
    path.write_bytes(b"no gzip at all")
    with pytest.raises(WorkloadError, match=r"load\.jsonl\.gz:1: cannot be read"):
        read_workload(path)
    packed = gzip.compress(b'{"id": 0, "prompt_len": 4, "max_tokens": 2}\n' * 1000)
    for damaged in (packed[:40], packed[:20] + b"\xff\xff\xff\xff" + packed[24:]):
        path.write_bytes(damaged)
        with pytest.raises(WorkloadError, match=r"cannot be read|is not JSON"):
            read_workload(path)


@pytest.mark.parametrize("name", ["load.jsonl", "load.jsonl.gz"])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(WorkloadError, match=rf"nowhere/{name}: cannot be written: No such file"):
        write_workload(tmp_path / "nowhere" / name, [WorkloadRequest(**GOOD)])
    with pytest.raises(WorkloadError, match=rf"{name}: is not written: there is no request to write"):
        write_workload(tmp_path / name, [])
    assert list(tmp_path.iterdir()) == []
