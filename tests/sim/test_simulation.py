"""What the scheduler is told, that runs repeat to the byte, and what ``simulate`` takes and gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.scheduler import Scheduler
from nanovllm.errors import ConfigError, ModelError, WorkloadError
from nanovllm.model_spec import ModelSpec
from nanovllm.trace.events import (
    AnyEvent,
    ChunkScheduled,
    RequestAdded,
    RequestFinished,
    StepFinished,
    StepStarted,
    TokensAppended,
    TraceStarted,
)
from sim import simulate
from sim.generators import Conversation, fixed, independent_requests, poisson, sessions, uniform
from sim.hardware import GPUS
from sim.workload import WorkloadRequest, write_workload
from tests.engine.runs import steps_of
from tests.sim.runs import SMALL, as_bytes, of_kind, requests, run


def test_the_scheduler_never_sees_the_output_length() -> None:
    # Scenario 29: two loads that differ in one hidden length are scheduled alike until that length shows.
    def load(output_len: int) -> list[WorkloadRequest]:
        lengths = (9, output_len, 12)
        return [
            WorkloadRequest(id=i, prompt_len=5, max_tokens=20, output_len=length) for i, length in enumerate(lengths)
        ]

    short, long = run(load(4)), run(load(11))
    assert [event.max_tokens for event in of_kind(short, RequestAdded)] == [20, 20, 20]
    assert {event.reason for event in of_kind(short, RequestFinished)} == {"eos"}
    until_shown = next(i for i, event in enumerate(short.events) if isinstance(event, StepFinished) and event.step == 3)
    same = [i for i, (a, b) in enumerate(zip(short.events, long.events, strict=False)) if a != b]
    [tokens] = [event for event in short.events[same[0] : same[0] + 1] if isinstance(event, TokensAppended)]
    assert tokens.requests == [0, 1, 2]
    assert same[0] < until_shown
    assert [step for step, event in enumerate(of_kind(short, TokensAppended)) if event == tokens] == [3]


def test_an_answer_ends_with_an_eos_and_holds_none_before() -> None:
    config = Config(kvcache_block_size=4, num_kvcache_blocks=100, eos=(5, 6, 7, 8), max_model_len=2000)
    load = [
        WorkloadRequest(id="hidden", prompt_len=4, max_tokens=300, output_len=200),
        WorkloadRequest(id="full", prompt_len=4, max_tokens=50, stop_token_ids=list(range(9, 12_000))),
        WorkloadRequest(id="to the brim", prompt_len=4, max_tokens=6, output_len=6),
    ]
    result = simulate(config, load)
    answers: dict[Any, list[int]] = {}
    for event in of_kind(result, TokensAppended):
        for request, token in zip(event.requests, event.tokens, strict=True):
            answers.setdefault(request, []).append(token)
    assert {event.request: event.reason for event in of_kind(result, RequestFinished)} == {
        "hidden": "eos",
        "full": "length",
        "to the brim": "eos",
    }
    assert (len(answers["hidden"]), answers["hidden"][-1]) == (200, 5)
    assert not {5, 6, 7, 8} & set(answers["hidden"][:-1])
    assert len(answers["full"]) == 50
    assert not set(answers["full"]) & set(range(5, 12_000))


def test_the_next_turn_of_a_conversation_finds_the_answer_in_the_cache() -> None:
    conversation = Conversation(num_turns=fixed(3), message_len=fixed(10), answer_len=fixed(14), mean_think_s=1)
    config = Config(kvcache_block_size=4, num_kvcache_blocks=1000, max_num_batched_tokens=64, max_num_seqs=8)
    result = run(sessions(1, conversation), config)
    assert [chunk[1:] for step in steps_of(result.events) for chunk in step.chunks] == [
        (0, 10),
        (20, 14),  # 10 + 14 tokens said, the KV of the last one never computed: 5 full blocks
        (44, 14),
    ]


def test_same_seed_same_trace_byte_for_byte(tmp_path: Path) -> None:
    load = list(
        independent_requests(40, prompt_len=uniform(1, 60), output_len=uniform(1, 30), arrivals=poisson(50), seed=2)
    )
    write_workload(tmp_path / "load.jsonl", load)
    traces = {
        as_bytes(simulate(SMALL, load).events),
        as_bytes(simulate(SMALL, load[::-1]).events),  # all times differ: sorting gives the same list
        as_bytes(simulate(SMALL, iter(load)).events),
        as_bytes(simulate(SMALL, tmp_path / "load.jsonl").events),
    }
    assert len(traces) == 1
    program = (
        "import sys, msgspec; from sim import simulate; from tests.sim.runs import SMALL, as_bytes;"
        "sys.stdout.buffer.write(as_bytes(simulate(SMALL, sys.argv[1]).events))"
    )
    other_process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "load.jsonl")],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert {other_process.stdout} == traces


def test_an_endless_workload_is_read_only_as_far_as_time_goes() -> None:
    read: list[int] = []

    def endless() -> Iterator[WorkloadRequest]:
        for index in count():
            read.append(index)
            if index == 50:
                return
            yield WorkloadRequest(id=index, prompt_len=4, max_tokens=1, arrival=10.0 * index)

    furthest: list[int] = []
    result = run(endless(), emit=lambda event: furthest.append(read[-1]) if isinstance(event, StepStarted) else None)
    assert furthest == [index + 1 for index in range(50)]
    assert result.num_steps == 50


def test_what_is_not_recorded_can_be_listened_to() -> None:
    heard: list[AnyEvent] = []
    silent = run(requests((4, 4, 0)), record=False, emit=heard.append)
    both = run(requests((4, 4, 0)), emit=heard.append)
    assert silent.events == []
    assert heard == both.events * 2
    assert (silent.num_steps, silent.time_s) == (both.num_steps, both.time_s) == (4, 7)
    with pytest.raises(ConfigError, match="record=False is not allowed: metrics are made from"):
        _ = silent.metrics
    assert both.metrics.output_tokens == 4
    assert both.metrics is both.metrics


def test_requests_that_can_never_run_are_told_and_the_others_go_on() -> None:
    load = [
        WorkloadRequest(id="long", prompt_len=500, max_tokens=1),
        WorkloadRequest(id="foreign", prompt=[5, 200_000], max_tokens=1),
        WorkloadRequest(id="fine", prompt_len=5, max_tokens=1),
    ]
    result = run(load)
    assert [(request, error.reason) for request, error in result.rejected] == [
        ("long", "pool_too_small"),
        ("foreign", "bad_token_id"),
    ]
    assert [event.request for event in of_kind(result, RequestFinished)] == ["fine"]


def test_the_header_says_what_ran() -> None:
    config = Config(kvcache_block_size=16)
    header = simulate(config, requests((4, 1, 0)), gpu="L4", model="Qwen/Qwen3-0.6B").events[0]
    assert isinstance(header, TraceStarted)
    assert (header.backend, header.model) == ("simulated", "Qwen/Qwen3-0.6B")
    assert header.config["num_blocks"] == pytest.approx(10_500, rel=0.1)


def test_a_policy_of_ones_own_decides() -> None:
    class LastComesFirst(Scheduler):
        def schedule(self) -> ScheduledBatch:
            self.waiting.reverse()
            return super().schedule()

    config = replace(SMALL, max_num_batched_tokens=4)
    result = run(requests((4, 1, 0.0), (4, 1, 0.0)), config, scheduler=LastComesFirst)
    assert [event.policy for event in of_kind(result, TraceStarted)] == ["LastComesFirst"]
    assert [event.request for event in of_kind(result, ChunkScheduled)] == [1, 0]


def test_the_model_may_be_a_directory_or_a_spec(tmp_path: Path) -> None:
    spec = ModelSpec.preset("llama-3.2-1b")
    by_spec = simulate(SMALL, requests((40, 8, 0)), model=spec)
    by_name = simulate(SMALL, requests((40, 8, 0)), model="llama-3.2-1b", gpu=GPUS["h200"])
    assert by_spec.time_s == by_name.time_s
    by_config = simulate(Config(model="llama-3.2-1b", num_kvcache_blocks=100), requests((40, 8, 0)))
    assert by_config.time_spent.weights_s == by_name.time_spent.weights_s
    in_full = Config(model="llama-3.2-1b", num_kvcache_blocks=100, dtype="float32")
    assert simulate(in_full, requests((40, 8, 0))).time_spent.weights_s == 2 * by_name.time_spent.weights_s
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"config\.json: architectures is missing|architectures=None"):
        simulate(SMALL, [], model=str(tmp_path))


def test_no_sequence_is_longer_than_the_model_has_positions() -> None:
    spec = replace(ModelSpec.preset("llama-2-7b"), max_position_embeddings=64)
    result = simulate(SMALL, requests((40, 25, 0), (40, 24, 0)), model=spec)
    assert [str(error) for _, error in result.rejected] == [
        "request 0: prompt (40) + max_tokens (25) = 65 tokens, but max_model_len is 64"
    ]
    assert of_kind(result, TraceStarted)[0].config["max_model_len"] == 64
    [event] = of_kind(simulate(SMALL, requests((40, 25, 0))), TraceStarted)
    assert event.config["max_model_len"] == ModelSpec.preset("qwen3-0.6b").max_position_embeddings
    with pytest.raises(ConfigError, match="max_model_len=65 is not allowed: at most 64, the positions of this model"):
        simulate(replace(SMALL, max_model_len=65), [], model=spec)


def test_more_gpus_than_kv_heads() -> None:
    """As the engine runs it: some hold the same head."""
    result = simulate(replace(SMALL, tensor_parallel_size=16), requests((40, 25, 0)), model="qwen3-0.6b")
    assert len(of_kind(result, RequestFinished)) == 1


def test_mistakes_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gpu='abacus' is not allowed: one of"):
        simulate(SMALL, [], gpu="abacus")
    with pytest.raises(ConfigError, match="tensor_parallel_size=3 is not allowed: a divisor of this model's 16 heads"):
        simulate(Config(tensor_parallel_size=3), [])
    with pytest.raises(ModelError, match="model 'gpt-5' is not known"):
        simulate(SMALL, [], model="gpt-5")
    with pytest.raises(WorkloadError, match="there is no such file"):
        simulate(SMALL, tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="text='Hello' is not allowed: there is no tokenizer"):
        simulate(SMALL, [WorkloadRequest(id=0, text="Hello", max_tokens=1)])
    texts = [WorkloadRequest(id=0, text="Hello", max_tokens=1)]
    assert len(of_kind(simulate(SMALL, texts, tokenize=lambda text: [1] * len(text)), RequestFinished)) == 1


def test_importing_the_simulator_imports_nothing_heavy() -> None:
    program = "import sys, nanovllm, sim; print([m for m in ('torch', 'numpy', 'rich', 'typer') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
