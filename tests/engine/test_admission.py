"""Which requests are refused, in which words, and that a refusal leaves no trace in the scheduler."""

from __future__ import annotations

import re

import pytest

from nanovllm.config import Config
from nanovllm.engine.clock import VirtualClock
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.scheduler import Scheduler
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import ConfigError, RequestError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, RequestAdded, RequestFinished, RequestId, RequestRejected
from tests.fakes import HashBackend


def make(**options: object) -> tuple[Scheduler, list[AnyEvent]]:
    events: list[AnyEvent] = []
    config = Config.from_options(**{"kvcache_block_size": 4, "num_kvcache_blocks": 8, **options})
    return Scheduler(config, emit=events.append), events


def sequence(length: int, max_tokens: int, request_id: RequestId | None = None) -> Sequence:
    return Sequence([1] * length, SamplingParams(max_tokens=max_tokens), request_id)


@pytest.mark.parametrize(
    ("length", "max_tokens", "reason", "message"),
    [
        (33, 1, "pool_too_small", "prompt (33) + max_tokens (1) needs 9 KV blocks of 4 tokens, but the pool has 8"),
        (30, 4, "pool_too_small", "prompt (30) + max_tokens (4) needs 9 KV blocks of 4 tokens, but the pool has 8"),
        (5, 36, "too_long", "prompt (5) + max_tokens (36) = 41 tokens, but max_model_len is 40"),
        (40, 1, "too_long", "prompt (40) + max_tokens (1) = 41 tokens, but max_model_len is 40"),
    ],
)
def test_what_can_never_finish_is_refused(length: int, max_tokens: int, reason: str, message: str) -> None:
    scheduler, events = make(max_model_len=40)
    with pytest.raises(RequestError, match=f"^{re.escape(f'request 9: {message}')}$") as caught:
        scheduler.add(sequence(length, max_tokens, 9))
    assert caught.value.reason == reason
    numbers = (caught.value.needed_blocks, caught.value.num_blocks)
    assert numbers == ((9, 8) if reason == "pool_too_small" else (0, 0))
    assert scheduler.is_finished()
    assert (scheduler.sequences, events) == ({}, [])


@pytest.mark.parametrize(("length", "max_tokens"), [(30, 3), (32, 1), (1, 32)])
def test_what_just_fits_the_pool_is_accepted(length: int, max_tokens: int) -> None:
    make()[0].add(sequence(length, max_tokens))


def test_what_just_fits_the_model_is_accepted() -> None:
    make(max_model_len=20)[0].add(sequence(10, 10))


def test_an_id_may_come_again_only_after_its_request_has_ended() -> None:
    scheduler, events = make()
    scheduler.add(sequence(1, 1, "a"))
    message = r"^request 'a': another request with this id is not finished yet$"
    with pytest.raises(RequestError, match=message) as caught:
        scheduler.add(sequence(1, 1, "a"))
    assert caught.value.reason == "duplicate_id"
    assert len(scheduler.waiting) == 1
    scheduler.abort("a")
    scheduler.add(sequence(1, 1, "a"))
    assert [type(event) for event in events] == [RequestAdded, RequestFinished, RequestAdded]


def test_requests_without_an_id_are_numbered_around_those_with_one() -> None:
    scheduler, _ = make()
    seqs = [sequence(1, 1, request_id) for request_id in (None, 1, None, "x", None)]
    for seq in seqs:
        scheduler.add(seq)
    assert [seq.request_id for seq in seqs] == [0, 1, 2, "x", 3]
    assert list(scheduler.sequences.values()) == list(scheduler.waiting) == seqs


def test_two_schedulers_number_for_themselves() -> None:
    for _ in range(2):
        scheduler, _ = make()
        seq = sequence(1, 1)
        scheduler.add(seq)
        assert seq.request_id == 0


def test_a_scheduler_needs_a_pool() -> None:
    message = r"^num_kvcache_blocks=-1 is not allowed: a scheduler needs at least 1 block$"
    with pytest.raises(ConfigError, match=message):
        Scheduler(Config())


def test_a_rejected_request_is_told_and_the_others_go_on() -> None:
    events: list[AnyEvent] = []
    engine = Engine(
        Config(kvcache_block_size=4, max_model_len=60),
        HashBackend(8, 4),
        clock=VirtualClock(),
        emit=events.append,
        vocab_size=50,
    )
    prompts = {"fine": [49], "empty": [], "foreign": [3, 50], "huge": [1] * 40, "long": [1] * 59, "last": [0]}
    params = SamplingParams(max_tokens=2)
    requests = [Request(request_id=name, prompt_token_ids=p, sampling_params=params) for name, p in prompts.items()]
    finished = [seq.request_id for result in engine.run(requests) for seq in result.finished]
    assert finished == ["fine", "last"]
    assert [event for event in events if isinstance(event, RequestRejected)] == [
        RequestRejected("empty", 0.0, "empty_prompt", 0, 0),
        RequestRejected("foreign", 0.0, "bad_token_id", 0, 0),
        RequestRejected("huge", 0.0, "pool_too_small", 11, 8),
        RequestRejected("long", 0.0, "too_long", 0, 0),
    ]
    assert [(name, error.reason) for name, error in engine.rejected] == [
        ("empty", "empty_prompt"),
        ("foreign", "bad_token_id"),
        ("huge", "pool_too_small"),
        ("long", "too_long"),
    ]
    assert str(engine.rejected[1][1]) == (
        "request 'foreign': the prompt holds token id 50, but the vocabulary ends at 49"
    )


def test_a_request_handed_over_directly_raises_and_is_told() -> None:
    events: list[AnyEvent] = []
    engine = Engine(Config(kvcache_block_size=4), HashBackend(8, 4), clock=VirtualClock(), emit=events.append)
    with pytest.raises(RequestError, match="the prompt is empty"):
        engine.add(Request(request_id=3, prompt_token_ids=[], sampling_params=SamplingParams()))
    assert events[-1] == RequestRejected(3, 0.0, "empty_prompt", 0, 0)
    assert engine.scheduler.is_finished()
