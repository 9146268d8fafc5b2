"""What happens, in words."""

from __future__ import annotations

from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent
from tests.trace.runs import preempting_run
from tests.viz.web.states import Tables
from tests.viz.web.traces import as_trace, request, run, tight_config, tight_run
from viz.sentences import SHOWN_RUNS, ordinal
from viz.web.recording import record
from viz.web.sentences import some_blocks


def tell(events: list[AnyEvent]) -> list[list[str]]:
    """The sentences of each frame."""
    tables = Tables(record(as_trace(events)))
    return [tables.sentences(frame) for frame in range(len(tables.column("frame.step")))]


def test_a_preemption_from_beginning_to_end() -> None:
    told = tell(preempting_run())
    assert told[0] == [
        "0 arrives: a prompt of 5 tokens, at most 9 to generate",
        "1 arrives: a prompt of 4 tokens, at most 10 to generate",
        "0 takes blocks 0-1",
        "0 prefills all its 5 tokens",
        "1 takes block 2",
        "1 prefills all its 4 tokens",
        "blocks 0, 2 are full and can be shared",
    ]
    assert told[1] == ["1 takes block 3", "0 and 1 decode one token each"]
    assert told[4] == [
        "1 is preempted for 0: gives up 2 blocks, loses 7 cached tokens; first time",
        "0 takes block 3",
        "0 decodes one token",
    ]
    assert told[5] == ["1 is held: needs up to 2 blocks, 1 free", "0 decodes one token"]
    assert told[6][0] == "1 is still held: needs up to 2 blocks, 1 free"
    assert told[9][-2:] == ["1 recomputes all its 8 tokens", "blocks 2-3 are full and can be shared"]
    assert told[-1][-1] == "1 finishes: it has all its 10 tokens"


def test_chunks_hits_and_evictions() -> None:
    config = tight_config(num_kvcache_blocks=6, max_num_batched_tokens=8)
    shared = list(range(1, 9))
    requests = [
        request("a", [*shared, 50], 1),
        request("b", [*shared, *range(60, 70)], 2, arrival_step=3),
    ]
    told = tell(run(config, requests))
    assert "a prefills a chunk: 8 tokens from 0 on, 1 remain" in told[0]
    assert "a prefills its last chunk: 1 token from 8 on" in told[1]
    assert told[2][1:4] == [
        "b finds 8 tokens in the cache: blocks 0-1",
        "b takes blocks 3-5",
        "b prefills a chunk: 8 tokens from 8 on, 2 remain",
    ]


def test_evictions_name_what_was_lost() -> None:
    config = tight_config(num_kvcache_blocks=4)
    requests = [request("a", range(1, 9), 1), request("b", range(20, 35), 1, arrival_step=1)]
    told = tell(run(config, requests))
    assert "b takes blocks 2-3, 1-0 and evicts the cached content of blocks 1-0" in told[1]


def test_reasons_to_hold_a_request() -> None:
    config = tight_config(max_num_seqs=2, num_kvcache_blocks=10)
    requests = [
        request("a", range(1, 11), 4),
        request("b", range(20, 32), 4),
        request("c", range(40, 45), 4, arrival_step=1),
    ]
    told = [sentence for frame in tell(run(config, requests)) for sentence in frame if "held" in sentence]
    assert told[0] == (
        "b is held: its up to 12 tokens exceed the 6 left of the budget; only a step's first prompt is split"
    )
    assert "c is held: all 2 slots are taken" in told


def test_a_watermark_is_named() -> None:
    config = tight_config(num_kvcache_blocks=4, watermark_blocks=1)
    requests = [request("a", range(1, 6), 3), request("b", range(20, 26), 2, arrival_step=1)]
    told = [sentence for frame in tell(run(config, requests)) for sentence in frame if "held" in sentence]
    assert told[0] == "b is held: needs up to 2 blocks, 2 free, of which 1 stay free"


def test_a_refusal_names_the_numbers() -> None:
    config = Config(kvcache_block_size=4, num_kvcache_blocks=2, max_num_batched_tokens=64)
    told = tell(run(config, [request("huge", range(1, 10), 4), request("ok", [1], 1)]))
    assert told[0][0] == "huge is refused: it needs 3 blocks, the pool has 2"


def test_many_decodes_are_counted() -> None:
    config = tight_config(max_num_seqs=8, num_kvcache_blocks=32)
    requests = [request(i, [10 * i + 1, 10 * i + 2], 3) for i in range(6)]
    assert "6 requests decode one token each" in tell(run(config, requests))[1]


def test_every_step_of_a_busy_run_has_words() -> None:
    assert all(tell(tight_run()))


@given(st.lists(st.integers(0, 30), max_size=40, unique=True))
def test_blocks_are_told_in_runs(blocks: list[int]) -> None:
    num_others, num_runs, *ends = some_blocks(blocks)
    told = []
    for first, last in zip(ends[::2], ends[1::2], strict=True):
        told += range(first, last + 1) if last >= first else range(first, last - 1, -1)
    assert num_runs == len(ends) // 2 <= SHOWN_RUNS
    assert told == blocks[: len(told)]
    assert num_others == len(blocks) - len(told)
    assert not num_others or num_runs == SHOWN_RUNS


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 111)] == [
        *["first", "second", "third", "4th", "11th", "12th", "13th", "21st", "22nd", "111th"]
    ]
