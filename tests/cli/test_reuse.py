"""``nanovllm workload reuse``: the account, its curve, its figure, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused

MOONCAKE = [
    {"timestamp": 60_000 * number, "input_length": 1100, "output_length": 3, "hash_ids": [0, 1, number]}
    for number in (2, 3, 3)
]


@pytest.fixture
def talks(tmp_path: Path, run: RunCommand) -> Path:
    path = tmp_path / "talks.jsonl"
    words = "--num-sessions 3 --num-turns 4 --message-len 30 --answer-len 40 --mean-think-s 20 --system-len 64"
    assert run("workload", "make-sessions", path, *words.split()).code == 0
    return path


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    path = tmp_path / "mooncake.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in MOONCAKE))
    return path


def test_the_account_of_a_trace(mooncake: Path, run: RunCommand) -> None:
    outcome = run("workload", "reuse", mooncake)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if "│" in line]
    assert (outcome.code, outcome.err) == (0, "")
    assert ["all", "9", "100.00%", "of 3 requests"] in rows
    assert ["repeats", "5", "55.56%", "of a block in an earlier prompt, by content alone"] in rows
    assert ["last partial", "–1", "–11.11%", "the prompt ends within it: only whole blocks are kept"] in rows
    assert ["found", "4", "44.44%", "in a pool of 9 blocks"] in rows


def test_an_account_adds_up_for_a_program(talks: Path, run: RunCommand) -> None:
    words = ("--kvcache-block-size", 16, "--pool-sizes", "60,30", "--json", "--model", "qwen3-0.6b")
    told = json.loads(run("workload", "reuse", talks, *words).out)
    assert [point["num_blocks"] for point in told["pools"]] == [30, 60]
    for point in (told, *told["pools"]):
        causes = sum(point["gains"].values()) - sum(point["misses"].values())
        assert point["num_repeats"] + causes == point["num_hits"]
        assert point["hit_rate"] == point["num_hits"] / point["num_prompt_blocks"]
    assert "evicted" not in told["misses"]
    assert told["pools"][0]["misses"]["evicted"] > 0
    assert told["gains"]["answer"] > 0
    tight = json.loads(run("workload", "reuse", talks, *words[:2], "--num-kvcache-blocks", 30, "--json").out)
    assert (tight["num_blocks"], tight["pools"]) == (30, [])


def test_the_curve_is_drawn(talks: Path, tmp_path: Path, run: RunCommand) -> None:
    figure = tmp_path / "reuse.svg"
    words = ("--kvcache-block-size", 16, "--pool-sizes", "30,60", "--figure", figure)
    outcome = run("workload", "reuse", talks, *words)
    assert outcome.code == 0
    assert "blocks in the pool" in outcome.out
    assert "KV blocks in the pool" in figure.read_text()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--pool-sizes", "10,x"), "pool_sizes='10,x' is not allowed: numbers of blocks with commas between"),
        (("--pool-sizes", "0"), "each from 1 to 33554432"),
        (("--pool-sizes", ""), "pool_sizes=''"),
        (("--figure", "x.png"), "figure='x.png' is not allowed: only with pool_sizes"),
        (("--figure", "x.gif", "--pool-sizes", "9"), "x.gif: is no name for a picture"),
        (("--figure", "nowhere/x.png", "--pool-sizes", "9"), "nowhere/x.png: cannot be written: No such file"),
        (("--kvcache-block-size", "16"), "kvcache_block_size=16 is not allowed: 512, the tokens that a hash id"),
        (("--no-enable-prefix-caching",), "enable_prefix_caching=False is not allowed"),
        (("--gpu", "abacus"), "abacus"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], part: str, mooncake: Path, run: RunCommand) -> None:
    assert_refused(run("workload", "reuse", mooncake, *words), part)


def test_no_trace_is_written_over(mooncake: Path, tmp_path: Path, run: RunCommand) -> None:
    picture = tmp_path / "mooncake.png"
    picture.write_bytes(mooncake.read_bytes())
    outcome = run("workload", "reuse", picture, "--figure", picture, "--pool-sizes", "9")
    assert_refused(outcome, "is read by this command")
