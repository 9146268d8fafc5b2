"""Public traces: tiny files with every peculiarity of their formats, and the real ones where they are at hand."""

from __future__ import annotations

import gzip
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nanovllm.errors import ConfigError, WorkloadError
from sim.readers import READERS, Slice, read_azure, read_mooncake, read_sharegpt
from sim.readers.any_format import Reading
from sim.readers.mooncake import read_mooncake_blocks
from sim.workload import Prompts, WorkloadRequest, read_workload, to_requests, write_workload

DATA = Path(__file__).parents[3] / "shared" / "data"

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51,10,0
2023-11-16 18:16:46.6805900+00:00,879,55
"""


def azure_file(path: Path, text: str = AZURE) -> Path:
    (path / "azure.csv").write_text(text)
    return path / "azure.csv"


def json_file(path: Path, *lines: dict[str, Any]) -> Path:
    (path / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path / "trace.jsonl"


def test_azure(tmp_path: Path) -> None:
    assert list(read_azure(azure_file(tmp_path))) == [
        WorkloadRequest(id=0, prompt_len=374, max_tokens=44, arrival=0.0),
        WorkloadRequest(id=1, prompt_len=396, max_tokens=109, arrival=4.314579),
        WorkloadRequest(id=2, prompt_len=10, max_tokens=1, arrival=4.31941),
        WorkloadRequest(id=3, prompt_len=879, max_tokens=55, arrival=60.0),
    ]


def test_slices_rates_and_hidden_lengths(tmp_path: Path) -> None:
    path = azure_file(tmp_path)
    assert list(read_azure(path, skip=1, limit=2, rate_scale=0.5, max_tokens=50)) == [
        WorkloadRequest(id=1, prompt_len=396, max_tokens=50, output_len=50, arrival=0.0),
        WorkloadRequest(id=2, prompt_len=10, max_tokens=50, output_len=1, arrival=0.009662),
    ]
    for options, message in (
        ({"limit": 0}, "limit=0 is not allowed: a whole number from 1 upward"),
        ({"skip": -1}, "skip=-1 is not allowed: a whole number from 0 upward"),
        ({"rate_scale": 0}, "rate_scale=0 is not allowed: a number above 0"),
        ({"max_tokens": 1.5}, "max_tokens=1.5 is not allowed: a whole number from 1 upward"),
    ):
        with pytest.raises(ConfigError, match=message):
            READERS["azure"](path, **options)


def test_a_span_of_time_is_cut_out_before_requests_are_counted(tmp_path: Path) -> None:
    path = azure_file(tmp_path)

    def kept(**options: Any) -> list[tuple[object, float | None]]:
        return [(request.id, request.arrival) for request in read_azure(path, **options)]

    assert kept(start_s=4.314579) == [(1, 0.0), (2, 0.004831), (3, 55.685421)]
    assert kept(end_s=4.31941) == [(0, 0.0), (1, 4.314579)]
    assert kept(start_s=1, end_s=60) == [(1, 0.0), (2, 0.004831)]
    assert kept(start_s=1, skip=1, limit=1) == [(2, 0.0)]
    assert kept(start_s=1, end_s=60, rate_scale=0.5) == [(1, 0.0), (2, 0.009662)]
    assert kept(start_s=100) == kept(start_s=5, end_s=6) == []
    for options, message in (
        ({"start_s": -1}, "start_s=-1 is not allowed: a number of seconds from 0 upward"),
        ({"start_s": float("nan")}, "start_s=nan is not allowed"),
        ({"end_s": 0}, "end_s=0 is not allowed: a number of seconds above start_s=0.0"),
        ({"start_s": 5, "end_s": 5}, "end_s=5 is not allowed: a number of seconds above start_s=5"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_azure(path, **options)


def test_what_comes_after_the_part_is_not_read(tmp_path: Path) -> None:
    path = azure_file(tmp_path, AZURE + "nonsense\n")
    assert [request.id for request in read_azure(path, limit=2)] == [0, 1]
    assert [request.id for request in read_azure(path, end_s=50)] == [0, 1, 2]
    with pytest.raises(WorkloadError, match=r"azure\.csv:6: has 1 cells"):
        list(read_azure(path))


def test_what_is_skipped_must_be_sorted_too(tmp_path: Path) -> None:
    path = json_file(tmp_path, *({**SHAREGPT, "arrival_time_ns": time_ns} for time_ns in (5, 3, 9)))
    with pytest.raises(WorkloadError, match=r"trace\.jsonl:2: the request came before the one above it"):
        list(read_sharegpt(path, skip=2))


def test_the_blocks_of_a_part_are_those_of_its_requests(tmp_path: Path) -> None:
    times = [0, 1000, 1000, 2500]
    path = json_file(tmp_path, *({**MOONCAKE, "timestamp": t, "hash_ids": [t, n]} for n, t in enumerate(times)))
    part = Slice(start_s=1, skip=1)
    blocks = [tuple(blocks) for blocks in read_mooncake_blocks(path, part)]
    assert blocks == [([1000, 2], 606), ([2500, 3], 606)]
    assert [request.id for request in read_mooncake(path, start_s=1, skip=1)] == [2, 3]


def test_mooncake_ids_become_equal_tokens(tmp_path: Path) -> None:
    path = json_file(
        tmp_path,
        {"timestamp": 0, "input_length": 1100, "output_length": 6, "hash_ids": [1, 2, 3]},
        {"timestamp": 1500, "input_length": 1030, "output_length": 4, "hash_ids": [1, 2, 4]},
        {"timestamp": 1500, "input_length": 600, "output_length": 4, "hash_ids": [2, 1]},
    )
    a, b, c = read_mooncake(path)
    assert (a.arrival, b.arrival, b.max_tokens) == (0.0, 1.5, 4)
    assert (a.prompt is not None, b.prompt is not None, c.prompt is not None) == (True, True, True)
    first, second, third = a.prompt or [], b.prompt or [], c.prompt or []
    assert [len(first), len(second), len(third)] == [1100, 1030, 600]
    assert first[:1024] == second[:1024]
    assert first[1024:1030] != second[1024:]
    assert third[:512] == first[512:1024]
    assert third[512:] == first[:88]
    assert next(read_mooncake(path, seed=1)).prompt != first
    assert next(read_mooncake(path)).prompt == first


def test_sharegpt(tmp_path: Path) -> None:
    line = {"input_toks": 3, "output_toks": 7, "arrival_time_ns": 1_500_000_000, "input_tok_ids": [5, 1, 4]}
    path = json_file(tmp_path, line, {**line, "arrival_time_ns": 1_750_000_000})
    assert list(read_sharegpt(path)) == [
        WorkloadRequest(id=0, prompt=[5, 1, 4], max_tokens=7, arrival=0.0),
        WorkloadRequest(id=1, prompt=[5, 1, 4], max_tokens=7, arrival=0.25),
    ]
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_sharegpt(packed)) == list(read_sharegpt(path))


MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 6, "hash_ids": [1, 2]}
SHAREGPT = {"output_toks": 7, "arrival_time_ns": 5, "input_tok_ids": [5, 1, 4]}


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        ("azure", "", "is empty: the columns TIMESTAMP,ContextTokens,GeneratedTokens are needed"),
        ("azure", "a,b\n", "1: the columns are ['a', 'b']: TIMESTAMP,ContextTokens"),
        ("azure", AZURE + "2023-11-16 18:15:46.68,1,1\n", "6: the request came before the one above it"),
        ("azure", AZURE + "2023-11-17 18:15:46.68,1\n", "6: has 2 cells: 3 are needed"),
        ("azure", AZURE + "2023-11-17 18:15:46.68,0,1\n", "6: ContextTokens=0 is not allowed: a whole number from 1"),
        ("azure", AZURE + "2023-11-17 18:15:46.68,5,-1\n", "6: GeneratedTokens='-1' is not allowed: a whole number"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request: a row for each is needed"),
        ("azure", AZURE + f"2023-11-17 18:15:46.68,{'9' * 5000},1\n", "6: ContextTokens='9999"),
        (
            "azure",
            AZURE + "2023-11-17 18:15:46.68,9999999999999,1\n",
            "6: ContextTokens=9999999999999 is not",
        ),
        ("azure", AZURE + "2023-11-17 18:15:46+05:00,5,1\n", "6: TIMESTAMP='2023-11-17 18:15:46+05:00' is not allowed"),
        ("azure", AZURE + "2023-11-17 18:15:46.-5,5,1\n", "6: TIMESTAMP='2023-11-17 18:15:46.-5' is not allowed"),
        ("azure", AZURE + "yesterday,5,1\n", "6: TIMESTAMP='yesterday' is not allowed: a time such as"),
        ("mooncake", "", "holds no request"),
        ("mooncake", json.dumps({**MOONCAKE, "hash_ids": [1]}), "1: hash_ids=[1] is not allowed: 2 whole numbers"),
        ("mooncake", json.dumps({**MOONCAKE, "hash_ids": [1, "2"]}), "1: hash_ids=[1, '2'] is not allowed: 2 whole"),
        ("mooncake", json.dumps({**MOONCAKE, "timestamp": -1}), "1: timestamp=-1 is not allowed: a whole number"),
        ("mooncake", json.dumps({**MOONCAKE, "timestamp": 10**400}), "1: timestamp=1000"),
        ("mooncake", '{"timestamp": 0}', "1: output_length is missing: a whole number from 0 upward is needed"),
        ("sharegpt", json.dumps({**SHAREGPT, "input_tok_ids": []}), "1: input_tok_ids=[] is not allowed: a list"),
        ("sharegpt", json.dumps({**SHAREGPT, "input_tok_ids": [2**32]}), "1: prompt=4294967296 is not allowed"),
        ("sharegpt", json.dumps({**SHAREGPT, "output_toks": None}), "1: output_toks=None is not allowed: a whole"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path: Path, reader: str, text: str, message: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(WorkloadError) as caught:
        list(READERS[reader](path))
    place, _, rest = str(caught.value).partition("trace")
    assert place == f"{tmp_path}/"
    assert rest[1:].lstrip().startswith(message)


def test_a_trace_may_begin_before_1970(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1960-01-01 00:00:00.5,5,1\n1960-01-01 00:00:02,5,1\n")
    assert [request.arrival for request in read_azure(path)] == [0.0, 1.5]


@pytest.mark.parametrize(("skip", "limit", "ids"), [(0, 2**63 - 1, [0, 1]), (2**63 - 1, 2**63 - 1, []), (1, 1, [1])])
def test_skip_and_limit_may_be_large(tmp_path: Path, skip: int, limit: int, ids: list[int]) -> None:
    path = json_file(tmp_path, SHAREGPT, SHAREGPT)
    assert [request.id for request in read_sharegpt(path, skip=skip, limit=limit)] == ids


def test_what_is_read_can_be_written_as_a_workload(tmp_path: Path) -> None:
    requests = list(read_azure(azure_file(tmp_path), max_tokens=50))
    write_workload(tmp_path / "load.jsonl", requests)
    assert read_workload(tmp_path / "load.jsonl") == requests


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "csv"}, "format='csv' is not allowed: one of auto, workload, azure"),
        ({"skip": -1}, "skip=-1 is not allowed"),
        ({"limit": 0}, "limit=0 is not allowed"),
        ({"start_s": -1.0}, "start_s=-1.0 is not allowed"),
        ({"start_s": 2.0, "end_s": 2.0}, "end_s=2.0 is not allowed: a number of seconds above start_s=2.0"),
        ({"rate_scale": 0.0}, "rate_scale=0.0 is not allowed"),
        ({"trace_max_tokens": 0}, "trace_max_tokens=0 is not allowed"),
        ({"trace_seed": -1}, "trace_seed=-1 is not allowed"),
    ],
)
def test_a_way_of_reading_that_there_is_not_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}"):
        Reading(**options)


def data_file(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"the public trace is not there: {DATA / name}")
    return DATA / name


def test_the_azure_traces() -> None:
    conversations = list(read_azure(data_file("azure2023_conv.csv")))
    assert len(conversations) == 19_366
    assert conversations[0].num_prompt_tokens == 374
    assert conversations[-1].arrival == pytest.approx(3501.721937)
    assert sum(1 for _ in read_azure(data_file("azure2023_code.csv"))) == 8_819


def test_the_mooncake_trace_shares_prefixes() -> None:
    path = data_file("mooncake_synthetic.jsonl")
    requests = list(islice(read_mooncake(path), 100))
    assert requests[0].num_prompt_tokens == 40_160
    assert len({tuple((request.prompt or [])[:512]) for request in requests}) < 100


def test_the_sharegpt_trace() -> None:
    path = data_file("vllm_rtxpro6000_llama31_8b/workload.jsonl.gz")
    requests = list(read_sharegpt(path))
    assert len(requests) == 300
    assert (requests[0].num_prompt_tokens, requests[0].max_tokens) == (2358, 531)
    [first] = to_requests(requests[:1], Prompts())
    assert list(first.prompt_token_ids[:3]) == [5971, 2927, 220]
