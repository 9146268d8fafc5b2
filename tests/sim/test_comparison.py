"""Comparisons: a simulated run stands for a real one, whose simulation must then be right to the last digit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nanovllm.config import POLICIES, Config
from nanovllm.errors import TraceError, UserError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import AnyEvent, TokensAppended
from nanovllm.trace.jsonl import write_trace
from sim import simulate
from sim.comparison import compare, read_traced_run
from sim.cost_models.fitted import RequestCoefficients
from sim.generators import independent_requests, poisson, uniform
from sim.workload import WorkloadRequest
from tests.sim.comparison_files import example_calibration
from tests.sim.test_lookahead import HostAndGpu

CONFIG = Config(kvcache_block_size=16, num_kvcache_blocks=60, max_num_seqs=8, max_num_batched_tokens=128)
COST_MODEL = example_calibration().cost_model("qwen3-0.6b")


def load(rate_per_s: float = 40.0) -> list[WorkloadRequest]:
    requests = independent_requests(
        30, prompt_len=uniform(20, 200), output_len=uniform(5, 60), arrivals=poisson(rate_per_s=rate_per_s), seed=3
    )
    return list(requests)


def conversation() -> list[WorkloadRequest]:
    """The second prompt holds the first one and its answer, the third shares the first block with both."""
    first = [*range(1, 41)]
    return [
        WorkloadRequest(id="a", prompt=first, max_tokens=30, ignore_eos=True),
        WorkloadRequest(id="b", prompt=[*first[:16], *range(500, 520)], max_tokens=5, arrival=0.01, ignore_eos=True),
    ]


def record(path: Path, workload: list[WorkloadRequest], config: Config = CONFIG, **options: Any) -> list[AnyEvent]:
    events = simulate(config, workload, cost_model=COST_MODEL, **options).events
    write_trace(events, path)
    return events


@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_simulation_of_a_simulation_is_the_same(tmp_path: Path, policy: str, lookahead: bool) -> None:
    path = tmp_path / "run.jsonl"
    workload = [msgspec.structs.replace(request, priority=place % 3) for place, request in enumerate(load())]
    record(path, workload, replace(CONFIG, policy=policy, lookahead=lookahead))
    run, by_step = read_traced_run(path), read_traced_run(path, by_step=True)
    assert (run.lookahead, run.config.policy, run.config.num_kvcache_blocks) == (lookahead, policy, 60)
    comparison, simulated = compare(run, COST_MODEL, model="qwen3-0.6b", by_step=by_step)
    assert comparison.first_difference is None
    assert comparison.same_decisions
    assert (comparison.num_requests, comparison.num_unpaired, len(simulated)) == (30, 0, 30)
    for pair in [*comparison.latencies.values(), *comparison.step_times.values()]:
        assert pair.error("mean") == pytest.approx(0, abs=1e-9)
        assert pair.mean_absolute_error == pytest.approx(0, abs=1e-9)
    assert comparison.throughput_error == pytest.approx(0, abs=1e-9)
    assert len(comparison.step_times) >= 2


def test_a_slower_machine_is_told_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [WorkloadRequest(id=0, prompt_len=64, max_tokens=9)])
    slower = replace(
        COST_MODEL,
        host={kind: type(host)(step_s=1.2e-3, sequence_s=0, token_s=0) for kind, host in COST_MODEL.host.items()},
    )
    comparison, _ = compare(read_traced_run(path), slower, model="qwen3-0.6b")
    assert comparison.same_decisions
    decode = comparison.step_times["decode step"]
    assert decode.simulated.mean - decode.real.mean == pytest.approx(1.2e-3 - 1.01e-4 - 1e-7 * 1)
    assert decode.error("p99") > 0.5
    assert comparison.throughput_error < -0.3


def test_other_decisions_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, load())
    run = read_traced_run(path, by_step=True)
    other = replace(run, config=replace(run.config, max_num_batched_tokens=64))
    comparison, _ = compare(other, COST_MODEL, model="qwen3-0.6b")
    assert comparison.same_decisions is False
    assert comparison.first_difference is not None
    assert comparison.first_difference.startswith("step ")


def test_shared_beginnings_and_answers_are_found_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = conversation()
    answer = [token for event in record(path, first[:1]) if isinstance(event, TokensAppended) for token in event.tokens]
    prompt = [*(first[0].prompt or []), *answer, 7, 8, 9]
    later = WorkloadRequest(id="c", prompt=prompt, max_tokens=4, arrival=5.0, ignore_eos=True)
    record(path, [*first, later])
    run, by_step = read_traced_run(path), read_traced_run(path, by_step=True)
    a, b, c = (request.prompt or [] for request in run.workload)
    assert a[:16] == b[:16] == c[:16]
    assert a[16:32] == c[16:32] != b[16:32]
    assert c[40:64] == answer[:24]
    comparison, rows = compare(run, COST_MODEL, model="qwen3-0.6b", by_step=by_step)
    assert comparison.same_decisions
    assert {row.request: row.hit_tokens for row in rows} == {"a": 0, "b": 16, "c": 64}


def test_arrivals_by_step_stay_so(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    workload = [WorkloadRequest(id=place, prompt_len=50, max_tokens=20, arrival_step=4 * place) for place in range(4)]
    record(path, workload)
    run = read_traced_run(path)
    assert [request.arrival_step for request in run.workload] == [0, 4, 8, 12]
    assert compare(run, COST_MODEL, model="qwen3-0.6b")[0].same_decisions


@pytest.mark.parametrize("lookahead", [False, True])
def test_requests_of_which_each_finds_an_idle_engine_come_at_their_times(tmp_path: Path, lookahead: bool) -> None:
    path = tmp_path / "run.jsonl"
    workload = [WorkloadRequest(id=place, prompt_len=50, max_tokens=20, arrival=10.0 * place) for place in range(3)]
    record(path, workload, replace(CONFIG, lookahead=lookahead))
    run = read_traced_run(path)
    assert [request.arrival for request in run.workload] == [0.0, 10.0, 20.0]
    comparison, _ = compare(run, COST_MODEL, model="qwen3-0.6b", by_step=read_traced_run(path, by_step=True))
    assert comparison.same_decisions
    assert (comparison.throughput_error, comparison.latencies["time to first token"].error("max")) == (0, 0)


@pytest.mark.parametrize(
    "arrival_steps",
    [
        pytest.param([0, 0, 4, 9], id="together at the start"),
        pytest.param([0, 4, 4, 4], id="together behind others"),
        pytest.param([0, 1, 1], id="together behind the first step"),
        pytest.param([0, 1, 2], id="one by one"),
        pytest.param([0, 100], id="when nothing is left to do"),
    ],
)
@pytest.mark.parametrize("lookahead", [False, True])
def test_arrivals_by_step_are_told_from_those_in_seconds(
    tmp_path: Path, arrival_steps: list[int], lookahead: bool
) -> None:
    """With requests that take time to be added, so that those which come together have other times."""
    path, workload = tmp_path / "run.jsonl", []
    for place, step in enumerate(arrival_steps):
        workload.append(WorkloadRequest(id=place, prompt_len=50, max_tokens=20, arrival_step=step))
    cost_model = replace(COST_MODEL, request=RequestCoefficients(request_s=1e-5, token_s=1e-6))
    write_trace(simulate(replace(CONFIG, lookahead=lookahead), workload, cost_model=cost_model).events, path)
    run = read_traced_run(path)
    if not lookahead or arrival_steps != [0, 1, 2]:
        assert [request.arrival_step for request in run.workload] == arrival_steps
    comparison, _ = compare(run, cost_model, model="qwen3-0.6b")
    assert comparison.same_decisions
    assert (comparison.throughput_error, comparison.latencies["time to first token"].error("max")) == (0, 0)


@pytest.mark.parametrize("lookahead", [False, True])
def test_arrivals_by_step_are_told_where_the_host_takes_no_time(tmp_path: Path, lookahead: bool) -> None:
    path = tmp_path / "run.jsonl"
    workload = [
        WorkloadRequest(id=place, prompt_len=50, max_tokens=20, arrival_step=step)
        for place, step in enumerate([0, 1, 1, 1])
    ]
    cost_model = HostAndGpu(0.0, 1.0)
    config = replace(CONFIG, max_num_seqs=2, lookahead=lookahead)
    write_trace(simulate(config, workload, cost_model=cost_model).events, path)
    comparison, _ = compare(read_traced_run(path), cost_model, model="qwen3-0.6b")
    assert comparison.same_decisions
    assert (comparison.throughput_error, comparison.latencies["time to first token"].error("max")) == (0, 0)


def test_requests_that_were_refused_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [WorkloadRequest(id="long", prompt_len=5000, max_tokens=9), *load()])
    comparison, _ = compare(read_traced_run(path, by_step=True), COST_MODEL, model="qwen3-0.6b")
    assert comparison.same_decisions
    assert (comparison.num_requests, comparison.num_unpaired) == (30, 0)


def test_a_model_of_few_words_is_compared_like_any_other(tmp_path: Path) -> None:
    path, model = tmp_path / "run.jsonl", replace(ModelSpec.preset("qwen3-0.6b"), vocab_size=128)
    record(path, load(), model=model)
    comparison, _ = compare(read_traced_run(path), COST_MODEL, model=model, by_step=read_traced_run(path, by_step=True))
    assert comparison.same_decisions
    assert (comparison.num_unpaired, comparison.throughput_error) == (0, 0)


def test_number_of_gpus_and_type_are_those_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    config = replace(CONFIG, tensor_parallel_size=4, dtype="float32")
    write_trace(simulate(config, load(), model="qwen3-8b", gpu="h100").events, path)
    run = read_traced_run(path)
    assert (run.config.tensor_parallel_size, run.config.dtype) == (4, "float32")
    comparison, _ = compare(run, None, model="qwen3-8b", gpu="h100", by_step=read_traced_run(path, by_step=True))
    assert comparison.throughput_error == 0
    one = replace(run, config=replace(run.config, tensor_parallel_size=1))
    assert compare(one, None, model="qwen3-8b", gpu="h100")[0].throughput_error < -0.3


def test_what_the_set_up_took_is_nobody_s_latency(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = record(path, [WorkloadRequest(id=place, prompt_len=50, max_tokens=20) for place in range(3)])
    late = [
        msgspec.structs.replace(
            event, **{name: getattr(event, name) + 2.0 for name in ("time",) if hasattr(event, name)}
        )
        for event in events
    ]
    write_trace(late, path)
    run = read_traced_run(path)
    assert [row.arrival_s for row in run.requests] == [2.0] * 3
    assert [request.arrival_step for request in run.workload] == [0] * 3
    comparison, _ = compare(run, COST_MODEL, model="qwen3-0.6b", by_step=read_traced_run(path, by_step=True))
    assert comparison.same_decisions
    assert comparison.latencies["time to first token"].error("mean") == pytest.approx(0, abs=1e-6)


def test_requests_that_ignore_the_end_of_a_text_are_told_from_others(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    workload = [
        WorkloadRequest(id="ends", prompt_len=20, max_tokens=30, output_len=6),
        WorkloadRequest(id="goes on", prompt_len=20, max_tokens=30, ignore_eos=True),
    ]
    record(path, workload)
    assert compare(read_traced_run(path), COST_MODEL, model="qwen3-0.6b")[0].same_decisions


def test_a_run_that_took_no_time_has_no_throughput(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = record(path, [WorkloadRequest(id=0, prompt_len=64, max_tokens=9)])
    timeless = [msgspec.structs.replace(event, time=0.0) if hasattr(event, "time") else event for event in events]
    write_trace(timeless, path)
    comparison, _ = compare(read_traced_run(path), COST_MODEL, model="qwen3-0.6b")
    assert (comparison.real_tokens_per_s, comparison.throughput_error) == (0, 0)
    assert comparison.simulated_tokens_per_s > 0


# ---- traces that cannot be compared --------------------------------------------------------------------------


def test_a_trace_without_requests_or_end_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = record(path, load())
    write_trace(events[: len(events) // 2], path)
    for part in (events[: len(events) // 2], events[:1]):
        write_trace(part, path)
        with pytest.raises(UserError, match=r"run.jsonl:\d+: .*only a run that came to its end can be compared$"):
            read_traced_run(path)
    record(path, [WorkloadRequest(id=0, prompt_len=5000, max_tokens=9)])
    with pytest.raises(TraceError, match=r"run.jsonl: holds no request$"):
        read_traced_run(path)
    path.write_bytes(b"")
    with pytest.raises(TraceError, match=r"run.jsonl"):
        read_traced_run(path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"policy":"prefill_first"', '"policy":"mine"', r":1: its header has options .*policy='mine'"),
        ('"block_size":16', '"block_size":16,"colour":1', r":1: its header has options .*colour=1"),
        ('"eos":[32000]', '"eos":null', r":1: config.eos is None: a list of token ids is needed"),
        ('"eos":[32000]', '"eos":["a"]', r":1: config.eos is \['a'\]: a list of token ids is needed"),
        ('"tokens":[', '"tokens":[7,', r"run.jsonl:\d+: step 0: 2 tokens for 1 requests"),
        ('"max_tokens":9', '"max_tokens":0', r"run.jsonl:2: request 0 has no prompt or nothing to generate"),
        ('"max_tokens":9', '"max_tokens":9,"priority":1000001', r"run.jsonl:2: request 0: priority=1000001 is not"),
        ('"step":0', '"step":-1', r"run.jsonl:\d+: step -1 starts"),
        ('"tensor_parallel_size":1', '"tensor_parallel_size":"2"', r":1: its header .*tensor_parallel_size='2'"),
        ('"dtype":"bfloat16"', '"dtype":"int4"', r":1: its header has options .*dtype='int4'"),
        ('"arrival":0.0', '"arrival":9.0', r"request 0 came at 9.0 s, and was handed over at 0.0 s"),
        ('"arrival":0.0', '"arrival":-1.0', r"request 0 came at -1.0 s, before the start"),
        ('"device":', '"device":-', r"run.jsonl:\d+: step 0: host=.*, device=-.*: times are from 0"),
    ],
)
def test_an_impossible_trace_is_one_clear_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "run.jsonl"
    record(path, [WorkloadRequest(id=0, prompt_len=64, max_tokens=9)])
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(TraceError, match=problem):
        read_traced_run(path)
