"""Every kind of file that a command reads, damaged in every way: one line that names the file, and exit code 2."""

from __future__ import annotations

import gzip
import json
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nanovllm.cli.main import main
from sim.calibration import write_calibration
from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused
from tests.sim.comparison_files import example_calibration, write_vllm_run
from tests.sim.latency_files import write_tables

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 6, "hash_ids": [1, 2]}
SHAREGPT = {"input_toks": 3, "output_toks": 7, "arrival_time_ns": 5, "input_tok_ids": [5, 1, 4]}
WORKLOAD = {"id": 0, "prompt_len": 8, "max_tokens": 4, "arrival": 0.5}
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class Kind(NamedTuple):
    """``place``: of the file, in a directory of its own. In commands, FILE is the file, DIR its directory, LOAD a
    workload. ``prepare``: makes what stands beside the file, and it too."""

    place: str
    commands: tuple[str, ...]
    prepare: Callable[[Path], object]
    is_text: bool = True


def holding(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def of_directory(write: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: write(path.parent)


def simulated(path: Path) -> None:
    load = path.with_name("small.jsonl")
    load.write_bytes(lines(WORKLOAD))
    assert main(["simulate", str(load), "--trace", str(path), "--json"]) == 0


def vllm_run(path: Path) -> None:
    write_vllm_run(path.parent)
    write_tables(path.parent)


OF_LOADS = ("workload check FILE", "simulate FILE", "policies FILE", "workload reuse FILE")
OF_TRACES = (
    *(f"trace {verb} FILE" for verb in ("metrics", "show", "check", "perfetto", "html", "plot")),
    "trace diff FILE FILE",
    "compare FILE",
    "simulate LOAD --outputs FILE",
)
OF_TABLES = ("simulate LOAD --table DIR --num-kvcache-blocks 99",)
OF_VLLM_RUNS = ("compare DIR --num-kvcache-blocks 99",)
KINDS = {
    "azure": Kind("trace.csv", OF_LOADS, holding(AZURE.encode())),
    "mooncake": Kind("trace.jsonl", OF_LOADS, holding(lines(MOONCAKE, MOONCAKE))),
    "sharegpt": Kind("trace.jsonl", OF_LOADS, holding(lines(SHAREGPT, SHAREGPT))),
    "workload": Kind("load.jsonl", OF_LOADS, holding(lines(WORKLOAD, {**WORKLOAD, "id": 1}))),
    "trace": Kind("run.jsonl", OF_TRACES, simulated),
    "compact trace": Kind("run.nvtrace", OF_TRACES[:3], simulated, is_text=False),
    "calibration": Kind(
        "card.json", ("simulate LOAD --calibration FILE",), lambda path: write_calibration(path, example_calibration())
    ),
    "table_meta": Kind("table_meta.yaml", OF_TABLES, of_directory(write_tables)),
    "table_dense": Kind("table_dense.csv", OF_TABLES, of_directory(write_tables)),
    "table_per_sequence": Kind("table_per_sequence.csv", OF_TABLES, of_directory(write_tables)),
    "table_attention": Kind("table_attention.csv", OF_TABLES, of_directory(write_tables)),
    "table_skew_fit": Kind("table_skew_fit.csv", OF_TABLES, of_directory(write_tables)),
    "vLLM's requests": Kind("real_requests.jsonl", OF_VLLM_RUNS, vllm_run),
    "vLLM's workload": Kind("workload.jsonl", OF_VLLM_RUNS, vllm_run),
    "vLLM's options": Kind("real_meta.json", OF_VLLM_RUNS, vllm_run),
    "model": Kind("config.json", ("simulate LOAD --model DIR",), holding(json.dumps(MODEL).encode())),
}
FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "blank": lambda good: b"\n \n\t\n",
    "binary": lambda good: bytes(range(256)) * 4,
    "zeros": lambda good: bytes(100),
    "a web page": lambda good: b"<html><body>404 not found</body></html>\n",
    "a list": lambda good: b"[1,2,3]\n",
    "a number": lambda good: b"42\n",
    "a long line": lambda good: b'{"a":"' + b"x" * 300_000 + b'"}\n',
    "deeply nested": lambda good: b'{"a":' * 100_000 + b"\n",
    "packed": gzip.compress,
}


@pytest.fixture
def small_load(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    path.write_bytes(lines(WORKLOAD))
    return path


def place(kind: Kind, tmp_path: Path, ending: str = "") -> Path:
    """The file where it belongs, sound."""
    path = tmp_path / "files" / kind.place
    path.parent.mkdir()
    kind.prepare(path)
    return path.replace(path.with_name(path.name + ending)) if ending else path


def words_of(command: str, path: Path, load: Path) -> list[object]:
    given = {"FILE": path, "DIR": path.parent, "LOAD": load}
    return [given.get(word, word) for word in command.split()]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_no_such_thing(name: str, fault: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path)
    path.write_bytes(FAULTS[fault](path.read_bytes()))
    for command in KINDS[name].commands:
        assert_refused(run(*words_of(command, path, small_load)), path)


@pytest.mark.parametrize("name", KINDS)
def test_a_directory_in_place_of_a_file(name: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path)
    path.unlink()
    path.mkdir()
    named = path.parent if name == "vLLM's requests" else path  # without that one, it is none of a vLLM run
    for command in KINDS[name].commands:
        assert_refused(run(*words_of(command, path, small_load)), named)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"table_skew_fit"}))  # that one may be missing
def test_a_file_that_is_not_there(name: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path)
    path.unlink()
    for command in KINDS[name].commands:
        assert_refused(run(*words_of(command, path, small_load)), path.parent)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.is_text])
@pytest.mark.parametrize("change", ["byte order mark", "CRLF"])
def test_what_editors_do_is_borne(name: str, change: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path)
    good = path.read_bytes()
    path.write_bytes(BOM_UTF8 + good if change == "byte order mark" else good.replace(b"\n", b"\r\n"))
    for command in KINDS[name].commands:
        outcome = run(*words_of(command, path, small_load))
        assert (outcome.code, outcome.err) == (0, "")


PACKED_FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "not packed": lambda good: good,
    "cut": lambda good: gzip.compress(good)[:-12],
    "damaged": lambda good: gzip.compress(good)[:12] + b"\xff\xff\xff\xff" + gzip.compress(good)[16:],
    "empty": lambda good: b"",
    "packed nothing": lambda good: gzip.compress(b""),
    "packed garbage": lambda good: gzip.compress(bytes(range(256))),
}


@pytest.mark.parametrize("fault", PACKED_FAULTS)
@pytest.mark.parametrize("name", ["azure", "mooncake", "sharegpt", "workload", "trace"])
def test_packed_files(name: str, fault: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path, ".gz")
    path.write_bytes(PACKED_FAULTS[fault](path.read_bytes()))
    for command in KINDS[name].commands:
        outcome = run(*words_of(command, path, small_load))
        if (name, fault) != ("trace", "cut") or command == "compare FILE":
            assert_refused(outcome, path)
        elif command.startswith("trace"):  # a run that was killed is shown as far as it goes
            assert outcome.code == ("check" in command)
            assert "was cut" in outcome.err + outcome.out
