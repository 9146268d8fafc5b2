"""How requests end: by an end-of-sequence token, a stop, their length, an abort; and what they leave behind."""

from __future__ import annotations

import pytest

from nanovllm.config import Config
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, BlocksFreed, RequestFinished, TokensAppended

EOS, OTHER_EOS, STOP = 90, 91, 92


def start(*seqs: Sequence, num_blocks: int = 16) -> tuple[Scheduler, list[AnyEvent]]:
    events: list[AnyEvent] = []
    config = Config(kvcache_block_size=4, num_kvcache_blocks=num_blocks, eos=(EOS, OTHER_EOS))
    scheduler = Scheduler(config, emit=events.append)
    for seq in seqs:
        scheduler.add(seq)
    return scheduler, events


def sample(scheduler: Scheduler, *tokens: int, time_s: float = 0.0) -> list[Sequence]:
    """One step with these samples."""
    batch = scheduler.schedule()
    return scheduler.postprocess(batch.sequences, list(tokens), batch.is_prefill, time_s)


@pytest.mark.parametrize(
    ("params", "tokens", "reason"),
    [
        pytest.param({}, [1, EOS], "eos", id="end of sequence"),
        pytest.param({}, [1, OTHER_EOS], "eos", id="another end of sequence"),
        pytest.param({"ignore_eos": True}, [EOS, OTHER_EOS, 1], "length", id="end of sequence ignored"),
        pytest.param({"stop_token_ids": [STOP]}, [1, STOP], "stop", id="stop token"),
        pytest.param({"stop_token_ids": [STOP], "ignore_eos": True}, [EOS, STOP], "stop", id="stop, eos ignored"),
        pytest.param({"stop_token_ids": [EOS], "ignore_eos": True}, [1, EOS], "stop", id="eos as a stop token"),
        pytest.param({"stop_token_ids": [EOS]}, [1, EOS], "eos", id="eos and stop token at once"),
        pytest.param({}, [1, 2, 3], "length", id="length"),
        pytest.param({}, [1, 2, EOS], "eos", id="the last token is the end of sequence"),
        pytest.param({"max_tokens": 1}, [1], "length", id="a single token"),
    ],
)
def test_reasons(params: dict[str, object], tokens: list[int], reason: str) -> None:
    seq = Sequence([5, 6, 7], SamplingParams(**{"max_tokens": 3, **params}))
    scheduler, events = start(seq)
    for token in tokens[:-1]:
        assert sample(scheduler, token) == []
    assert sample(scheduler, tokens[-1], time_s=1.5) == [seq]
    assert (seq.finish_reason, seq.completion_token_ids) == (reason, tokens)
    assert events[-2:] == [RequestFinished(0, 1.5, reason), BlocksFreed(0, seq_blocks(tokens))]
    assert scheduler.is_finished()
    assert scheduler.sequences == {}
    assert scheduler.block_manager.num_free_blocks == 16


def seq_blocks(tokens: list[int]) -> list[int]:
    """The table of a prompt of 3 after ``tokens``, deepest first: the last token's KV was never needed."""
    return list(reversed(range(-(-(3 + len(tokens) - 1) // 4))))


def test_a_stop_condition_is_asked_after_each_token() -> None:
    asked: list[list[int]] = []

    def stops(seq: Sequence) -> bool:
        asked.append(seq.completion_token_ids)
        return seq.last_token == 8

    seq = Sequence([1, 2], SamplingParams(max_tokens=9), stop_condition=stops)
    scheduler, _ = start(seq)
    while not seq.is_finished:
        sample(scheduler, 6 + len(asked))
    assert (asked, seq.finish_reason) == ([[6], [6, 7], [6, 7, 8]], "stop")


def test_those_that_end_together_release_in_the_order_of_the_step() -> None:
    seqs = [Sequence([index] * 5, SamplingParams(max_tokens=1)) for index in range(3)]
    scheduler, _ = start(*seqs, num_blocks=7)
    assert sample(scheduler, 1, 2, 3) == seqs
    assert list(scheduler.block_manager.free_blocks) == [6, 1, 0, 3, 2, 5, 4]


def test_ending_in_the_middle_keeps_the_order_of_the_others() -> None:
    seqs = [Sequence([index] * 5, SamplingParams(max_tokens=4)) for index in range(3)]
    scheduler, events = start(*seqs)
    sample(scheduler, 1, 2, 3)
    assert sample(scheduler, 1, EOS, 3) == [seqs[1]]
    assert list(scheduler.running) == [seqs[0], seqs[2]]
    assert events[-3:-2] == [TokensAppended([0, 1, 2], [1, EOS, 3])]


def test_abort_by_sequence_or_by_id() -> None:
    one, two = Sequence([1]), Sequence([2], request_id="two")
    scheduler, events = start(one, two)
    assert scheduler.abort(one, time_s=2.0)
    assert scheduler.abort("two", time_s=3.0)
    assert [event for event in events if isinstance(event, RequestFinished)] == [
        RequestFinished(0, 2.0, "aborted"),
        RequestFinished("two", 3.0, "aborted"),
    ]
    assert scheduler.is_finished()
    assert not scheduler.abort(one)
    assert not scheduler.abort(Sequence([3]))


def test_aborting_one_whose_id_is_in_use_again_leaves_the_other_alone() -> None:
    old, new = Sequence([1], request_id="a"), Sequence([2], request_id="a")
    scheduler, _ = start(old)
    scheduler.abort(old)
    scheduler.add(new)
    assert not scheduler.abort(old)
    assert list(scheduler.waiting) == [new]
