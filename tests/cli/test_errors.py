"""A user's mistake: one line on standard error that says what and where, exit code 2, no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand

GOOD: dict[str, Any] = {"id": 1, "prompt_len": 8, "max_tokens": 4}


def assert_refused(outcome: Any, *parts: object) -> None:
    """It is an error, told in one line that has these parts."""
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for part in parts:
        assert str(part) in outcome.err


@pytest.mark.parametrize("command", ["check", "simulate"])
@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('{"id": 1, "prompt_len": 8', "is not JSON"),
        ("[1, 2]", "a JSON object is needed"),
        (GOOD | {"promt": 1}, "promt=1"),
        (GOOD | {"prompt_len": "8"}, "prompt_len='8'"),
        (GOOD | {"prompt_len": -8}, "prompt_len=-8"),
        (GOOD | {"max_tokens": 0}, "max_tokens=0"),
        ({"id": 1, "prompt_len": 8}, "max_tokens is missing"),
        ({"id": 1, "max_tokens": 8}, "one of prompt, prompt_len and text"),
        (GOOD | {"id": 0}, "line 1 has it already"),
        (GOOD | {"arrival": -1}, "arrival=-1"),
        (GOOD | {"arrival": 1, "arrival_step": 1}, "not together with arrival"),
        (GOOD | {"prefix_len": 3}, "prefix=None"),
        (GOOD | {"temperature": -1}, "temperature=-1"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
def test_each_mistake_of_a_workload_names_its_line(
    command: str, line: Any, part: str, tmp_path: Path, run: RunCommand
) -> None:
    path = tmp_path / "load.jsonl"
    text = json.dumps(line) if isinstance(line, dict) else line
    first = json.dumps(GOOD | {"id": 0}).encode() + b"\n"
    path.write_bytes(first + (text if isinstance(text, bytes) else text.encode()) + b"\n")
    words = ["workload", "check"] if command == "check" else ["simulate"]
    assert_refused(run(*words, path), f"{path}:2: ", part)


@pytest.mark.parametrize(
    "words",
    [
        ("workload", "check", "MISSING"),
        ("workload", "convert", "MISSING", "OUT"),
        ("simulate", "MISSING"),
        ("simulate", "LOAD", "--outputs", "MISSING"),
        ("trace", "show", "MISSING"),
        ("trace", "check", "MISSING"),
        ("trace", "metrics", "MISSING"),
        ("trace", "perfetto", "MISSING"),
        ("trace", "plot", "MISSING"),
        ("trace", "html", "MISSING"),
        ("trace", "html", "TRACE", "--compare", "MISSING"),
        ("trace", "diff", "TRACE", "MISSING"),
        ("generate", "--file", "MISSING"),
        ("generate", "--file", "MISSING.jsonl"),
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_there_is_named(
    words: tuple[str, ...], tmp_path: Path, workload: Path, trace: Path, run: RunCommand
) -> None:
    given = {"LOAD": workload, "TRACE": trace, "OUT": tmp_path / "out"}
    assert_refused(run(*(given.get(word, word) for word in words)), "MISSING")


WRITING = [
    ("workload", "make"),
    ("workload", "make-sessions"),
    ("workload", "convert", "LOAD"),
    ("simulate", "LOAD", "--trace"),
    ("compare", "TRACE", "--trace"),
    ("compare", "TRACE", "--figure", "other.png", "--trace"),
    ("trace", "perfetto", "TRACE", "-o"),
    ("trace", "html", "TRACE", "-o"),
]
"""Commands that write; where to is their next word."""


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_file_that_cannot_be_written_is_named(
    words: tuple[str, ...], workload: Path, trace: Path, run: RunCommand
) -> None:
    given = {"LOAD": workload, "TRACE": trace}
    place = workload / "under" / "a-file.jsonl"
    assert_refused(run(*(given.get(word, word) for word in words), place), place)


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_links_that_go_in_circles_lead_nowhere(
    words: tuple[str, ...], workload: Path, trace: Path, run: RunCommand, tmp_path: Path
) -> None:
    given = {"LOAD": workload, "TRACE": trace}
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert_refused(run(*(given.get(word, word) for word in words), circle), circle)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--max-num-seqs", "0"), "max_num_seqs=0"),
        (("--max-num-seqs", "many"), "'--max-num-seqs'"),
        (("--max-num-seqs",), "--max-num-seqs"),
        (("--num-kvcache-blocks", "0"), "num_kvcache_blocks=0"),
        (("--gpu-memory-utilization", "2"), "gpu_memory_utilization=2"),
        (("--policy", "random"), "policy='random'"),
        (("--dtype", "int4"), "dtype='int4'"),
        (("--gpu", "abacus"), "gpu='abacus'"),
        (("--model", "gpt-5"), "model 'gpt-5'"),
        (("--format", "xml"), "format='xml'"),
        (("--format", "azure"), "the columns are"),
        (("--limit", "0"), "limit=0"),
        (("--skip", "-1"), "skip=-1"),
        (("--rate-scale", "0"), "rate_scale=0"),
        (("--trace-max-tokens", "5"), "trace_max_tokens=5"),
        (("another.jsonl",), "another.jsonl"),
        (("--gpu", "l4", "--model", "llama-3.1-70b"), "no room for a KV block"),
    ],
)
def test_a_wrong_value_is_named(words: tuple[str, ...], part: str, workload: Path, run: RunCommand) -> None:
    assert_refused(run("simulate", workload, *words), part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--prompt-len", "long"), "prompt_len='long'"),
        (("--prompt-len", "uniform:3"), "uniform:LOW,HIGH is needed"),
        (("--prompt-len", "uniform:9,3"), "high=3"),
        (("--prompt-len", "0"), "length=0"),
        (("--output-len", "lognormal:x,1"), "could not convert"),
        (("--arrivals", "poisson:0"), "rate_per_s=0"),
        (("--arrivals", "sometimes"), "poisson:RATE_PER_S"),
        (("--num-requests", "0"), "num_requests=0"),
        (("--num-prefixes", "1", "--prefix-share", "2"), "share=2"),
        (("--max-tokens", "0"), "max_tokens=0"),
    ],
)
def test_a_wrong_value_of_a_generator_is_named(
    words: tuple[str, ...], part: str, tmp_path: Path, run: RunCommand
) -> None:
    assert_refused(run("workload", "make", tmp_path / "load.jsonl", *words), part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--steps", "x"), "steps='x'"),
        (("--steps", ":"), "steps=':'"),
        (("--steps", "5:2"), "the first step, then the last"),
        (("--steps", "900:"), "the trace has steps 0 to "),
        (("--request", "nobody"), "'nobody'"),
    ],
)
def test_a_part_of_a_trace_that_is_not_there(words: tuple[str, ...], part: str, trace: Path, run: RunCommand) -> None:
    assert_refused(run("trace", "show", trace, *words), part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--kind", "pie"), "'pie' is no kind of figure: the kinds are timeline, "),
        (("--kind", "queue"), "no step preempts a request"),
        (("--steps", "5:2"), "the first step, then the last"),
        (("--steps", "900:"), "the trace has steps 0 to "),
        (("-o", "run.gif"), "run.gif: is no name for a picture: it must end in .png or .svg"),
        (("-o", "no-such-directory/run.svg"), "cannot be written"),
    ],
)
def test_a_picture_that_cannot_be_drawn(words: tuple[str, ...], part: str, trace: Path, run: RunCommand) -> None:
    assert_refused(run("trace", "plot", trace, *words), part)


def test_a_step_of_a_trace_that_has_none(trace: Path, tmp_path: Path, run: RunCommand) -> None:
    header = tmp_path / "header.jsonl"
    header.write_bytes(trace.read_bytes().splitlines(keepends=True)[0])
    outcome = run("trace", "show", header, "--steps", "3")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("\nerror: there is no such step: the trace has none\n")


def test_a_file_that_is_no_trace(workload: Path, run: RunCommand) -> None:
    for command in ("show", "check", "metrics", "perfetto", "plot", "html"):
        assert_refused(run("trace", command, workload), f"{workload}:1: ")


@pytest.mark.parametrize(
    "words", [(), ("trace",), ("workload",), ("trace", "show"), ("models", "fetch"), ("no-such-command",)], ids=" ".join
)
def test_a_command_that_is_not_complete(words: tuple[str, ...], run: RunCommand) -> None:
    if words:
        assert_refused(run(*words), "--help")
    else:
        assert run(*words).code == 0


# ---- requests that can never run -----------------------------------------------------------------------------


def test_simulated_requests_that_can_never_run(workload: Path, run: RunCommand) -> None:
    outcome = run("simulate", workload, "--kvcache-block-size", 16, "--num-kvcache-blocks", 3, "--json")
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        "error: request 'a': prompt (40) + max_tokens (12) needs 4 KV blocks of 16 tokens, but the pool has 3",
        "error: request 'b': prompt (30) + max_tokens (20) needs 4 KV blocks of 16 tokens, but the pool has 3",
    ]
    assert json.loads(outcome.out)["metrics"]["num_completed"] == 1


def test_many_refusals_are_summed_up(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "load.jsonl"
    assert run("workload", "make", path, "--num-requests", 9, "--prompt-len", 50000).code == 0
    outcome = run("simulate", path, "--json")
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 6
    assert outcome.err.endswith("error: 4 more requests can never run\n")


# ---- files that a command reads ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "LOAD", "--trace", "LOAD"),
        ("simulate", "LOAD", "--outputs", "TRACE", "--trace", "TRACE"),
        ("generate", "--file", "LOAD", "--trace", "LOAD"),
        ("trace", "perfetto", "TRACE", "-o", "TRACE"),
        ("trace", "plot", "TRACE", "-o", "TRACE"),
        ("trace", "html", "TRACE", "-o", "TRACE"),
    ],
    ids=" ".join,
)
def test_no_command_writes_over_what_it_reads(
    words: tuple[str, ...], workload: Path, trace: Path, tmp_path: Path, run: RunCommand
) -> None:
    files = {}
    for name, path in (("LOAD", workload), ("TRACE", trace)):
        files[name] = tmp_path / path.name
        files[name].write_bytes(path.read_bytes())
    outcome = run(*(files.get(word, word) for word in words))
    assert_refused(outcome, "is read by this command: another file is needed to write to")
    assert files["LOAD"].read_bytes() == workload.read_bytes()
    assert files["TRACE"].read_bytes() == trace.read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "LOAD", "--gpu", "abacus"),
        ("simulate", "LOAD", "--model", "gpt-5"),
        ("simulate", "LOAD", "--format", "azure"),
        ("simulate", "LOAD", "--max-num-seqs", "0"),
        ("simulate", "MISSING"),
        ("simulate", "LOAD", "--outputs", "MISSING"),
        ("generate", "Hi", "--model", "nowhere"),
        ("generate", "Hi", "--model", "MODEL", "--no-chat", "--system", "x"),
        ("generate", "Hi", "--model", "MODEL", "--eos", "-5"),
    ],
    ids=" ".join,
)
def test_a_mistake_leaves_an_older_trace_as_it_was(
    words: tuple[str, ...], workload: Path, trace: Path, model_path: Path, tmp_path: Path, run: RunCommand
) -> None:
    older = tmp_path / "older.jsonl"
    older.write_bytes(trace.read_bytes())
    given = {"LOAD": workload, "MODEL": model_path, "MISSING": tmp_path / "missing"}
    for place in (older, tmp_path / "new.jsonl"):
        assert_refused(run(*(given.get(word, word) for word in words), "--trace", place))
    assert older.read_bytes() == trace.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["older.jsonl"]
