"""Accounts of whole workloads: made ones on pools of several sizes, and the Mooncake trace where it is at hand."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.errors import ConfigError, WorkerError
from sim.generators import Conversation, SharedPrefixes, fixed, independent_requests, poisson, sessions, uniform
from sim.prefix_reuse import GAINS, MISSES, ReuseRun, account_for_reuse, num_blocks_for_all, reuse_by_pool
from sim.readers import Slice, read_mooncake
from sim.readers.mooncake import read_mooncake_blocks
from sim.workload import WorkloadRequest
from tests.sim.test_readers import data_file

CONFIG = Config(kvcache_block_size=16)


def prefixed() -> list[WorkloadRequest]:
    """Forty requests, eight blocks each, of which six are shared by ten."""
    prefixes = SharedPrefixes(num_prefixes=4, prefix_len=96)
    lengths = {"prompt_len": fixed(32), "output_len": fixed(10)}
    return list(independent_requests(40, **lengths, arrivals=poisson(rate_per_s=2), prefixes=prefixes, seed=3))


def talks() -> list[WorkloadRequest]:
    talk = Conversation(num_turns=fixed(4), message_len=uniform(5, 40), answer_len=fixed(20), mean_think_s=5)
    return sessions(5, talk, arrivals=poisson(rate_per_s=1), seed=1)


def test_an_endless_cache_finds_what_is_repeated() -> None:
    run = ReuseRun(config=CONFIG, read=prefixed)
    account = account_for_reuse(run)
    assert account.num_blocks == num_blocks_for_all(run) == 40 * 9  # 138 tokens each
    assert (account.num_prompt_blocks, account.num_repeats) == (40 * 8, 36 * 6)
    assert account.num_hits + account.misses.get("not_computed", 0) == 36 * 6
    assert set(account.misses) <= {"not_computed"}
    assert account.hit_rate <= account.repeat_rate == 36 * 6 / 320


def two_that_delegate() -> list[WorkloadRequest]:
    """The second one's sub-agent begins before the first one's, with the same 32 tokens."""
    same = list(range(1, 33))
    return [
        WorkloadRequest(id="slow", prompt=[100] * 8, max_tokens=500, ignore_eos=True),
        WorkloadRequest(id="slow-sub", prompt=[*same, 200], max_tokens=2, after="slow"),  # type: ignore[arg-type]
        WorkloadRequest(id="quick", prompt=[101] * 8, max_tokens=2, ignore_eos=True),
        WorkloadRequest(id="quick-sub", prompt=[*same, 201], max_tokens=2, after="quick"),  # type: ignore[arg-type]
    ]


def test_what_repeats_repeats_what_arrived_before() -> None:
    account = account_for_reuse(ReuseRun(config=CONFIG, read=two_that_delegate))
    assert (account.num_repeats, account.num_hits, account.misses, account.gains) == (2, 2, {}, {})


def test_smaller_pools_evict_more() -> None:
    sizes = [10, 16, 24, 32, 64]
    accounts = list(reuse_by_pool(ReuseRun(config=CONFIG, read=prefixed), sizes, max_processes=1))
    assert [account.num_blocks for account in accounts] == sizes
    hits = [account.num_hits for account in accounts]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1]
    assert accounts[0].misses["evicted"] > 0
    assert "evicted" not in accounts[-1].misses


def die() -> list[WorkloadRequest]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_process_that_is_killed_is_told_in_words() -> None:
    with pytest.raises(WorkerError, match="a process that simulated a pool was killed"):
        list(reuse_by_pool(ReuseRun(config=CONFIG, read=die), [12, 40], max_processes=2))


def test_several_processes_come_to_the_same() -> None:
    run = ReuseRun(config=CONFIG, read=prefixed)
    alone, together = (list(reuse_by_pool(run, [12, 40], max_processes=number)) for number in (1, 2))
    assert [replace(account, loop_time_s=0.0) for account in alone] == [
        replace(account, loop_time_s=0.0) for account in together
    ]


def test_conversations_find_their_answers_too() -> None:
    account = account_for_reuse(ReuseRun(config=replace(CONFIG, kvcache_block_size=4), read=talks))
    assert account.gains["answer"] > 0
    assert set(account.misses) <= {"last_partial", "last_whole", "not_computed"}
    assert set(account.gains) <= set(GAINS)


def test_who_does_not_fit_is_refused_and_accounted_for() -> None:
    account = account_for_reuse(ReuseRun(config=CONFIG, read=prefixed), num_blocks=5)
    assert (account.num_hits, account.misses) == (0, {"refused": 36 * 6})
    assert set(account.misses) <= set(MISSES)


def test_nothing_is_reused_without_a_cache() -> None:
    with pytest.raises(ConfigError, match="enable_prefix_caching=False is not allowed"):
        ReuseRun(config=replace(CONFIG, enable_prefix_caching=False), read=prefixed)


def test_ids_of_a_trace_tell_of_last_blocks_as_well(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [(1100, [0, 1, 2]), (1100, [0, 1, 2]), (1600, [0, 1, 2, 3]), (512, [0])]
    lines = [
        {"timestamp": 60_000 * number, "input_length": length, "output_length": 3, "hash_ids": ids}
        for number, (length, ids) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = ReuseRun(
        config=Config(kvcache_block_size=512),
        read=partial(read_mooncake, path),
        read_blocks=partial(read_mooncake_blocks, path, Slice()),
    )
    account = account_for_reuse(run)
    assert account.num_blocks == 3 + 3 + 4 + 2
    assert (account.num_prompt_blocks, account.num_repeats, account.num_hits) == (11, 7, 4)
    assert account.misses == {"last_partial": 1, "never_whole": 1, "last_whole": 1}


def test_the_mooncake_trace() -> None:
    """Its first minutes: the whole of it takes longer. All that an endless cache misses are last blocks."""
    path = data_file("mooncake_synthetic.jsonl")
    ids = [block for blocks in read_mooncake_blocks(path, Slice()) for block in blocks.hash_ids]
    assert (len(ids), len(ids) - len(set(ids))) == (121_877, 77_953)
    run = ReuseRun(
        config=Config(kvcache_block_size=512),
        read=partial(read_mooncake, path, limit=300),
        read_blocks=partial(read_mooncake_blocks, path, Slice(limit=300)),
    )
    account = account_for_reuse(run)
    assert account.num_prompt_blocks == sum(len(b.hash_ids) for b in read_mooncake_blocks(path, Slice(limit=300)))
    assert account.num_repeats - account.misses["last_partial"] == account.num_hits
    assert set(account.misses) == {"last_partial"}
