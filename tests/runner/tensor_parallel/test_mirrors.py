"""What other ranks see of the sequences is what they need to compute the same; and it takes few bytes to tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence
from nanovllm.runner.tensor_parallel.messages import Step, decode_order, encode
from nanovllm.runner.tensor_parallel.mirrors import Mirrors, Originals
from nanovllm.sampling_params import SamplingParams
from tests.fakes import DeferredHashBackend, Row, expected_completion
from tests.strategies import VOCAB_SIZE, configs, workloads

COMPUTED_FROM = (
    "request_id",
    "token_ids",
    "num_tokens",
    "num_cached_tokens",
    "num_scheduled_tokens",
    "num_preemptions",
    "block_table",
)
DRAWN_FROM = ("temperature", "top_k", "top_p", "min_p", "seed")


class MirroringBackend(DeferredHashBackend):
    """Computes on mirrors that know the sequences from messages only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.originals, self.mirrors = Originals(), Mirrors()
        self.message_bytes: list[int] = []

    def _read_batch(self, batch: ScheduledBatch) -> list[Row]:
        message = encode(self.originals.tell(batch))
        self.message_bytes.append(len(message))
        step = decode_order(message)
        assert isinstance(step, Step)
        assert step.is_to_be_agreed == batch.is_prefill
        mirrors = self.mirrors.follow(step)
        for mirror, seq in zip(mirrors, batch.sequences, strict=True):
            assert mirror is not seq
            for name in COMPUTED_FROM:
                assert getattr(mirror, name) == getattr(seq, name), name
            for name in DRAWN_FROM:
                assert getattr(mirror.sampling_params, name) == getattr(seq.sampling_params, name), name
        return super()._read_batch(ScheduledBatch(mirrors, batch.is_prefill))


@given(data=st.data())
def test_runs_on_mirrors_are_right(data: st.DataObject) -> None:
    """Whatever is chunked, preempted, aborted, failed or looked ahead of."""
    requests = data.draw(workloads())
    config = data.draw(configs(requests))
    failing_calls = data.draw(st.sets(st.integers(0, 20), max_size=2))
    aborts = data.draw(st.dictionaries(st.integers(0, 20), st.integers(0, 6), max_size=3))
    backend = MirroringBackend(
        config.num_kvcache_blocks, config.kvcache_block_size, vocab_size=VOCAB_SIZE, failing_calls=failing_calls
    )
    engine = Engine(config, backend)
    finished: list[Sequence] = []
    for result in engine.run(requests):
        finished += result.finished
        if result.step in aborts:
            engine.abort(aborts[result.step])
    for seq in finished:
        if seq.finish_reason != "error":
            params = seq.sampling_params
            assert seq.completion_token_ids == expected_completion(
                seq.prompt_token_ids, params.max_tokens, vocab_size=VOCAB_SIZE, end_token_ids=seq.end_token_ids
            )


def test_what_has_ended_is_forgotten() -> None:
    backend = MirroringBackend(20, 4)
    engine = Engine(Config(num_kvcache_blocks=20, kvcache_block_size=4), backend)
    for index in range(5):
        list(engine.run([request(index, 6)]))
    assert len(backend.mirrors._sequences) == len(backend.originals._told) == 1


def request(request_id: int | str, num_tokens: int, **params: Any) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=list(range(num_tokens)),
        sampling_params=SamplingParams(ignore_eos=True, **{"max_tokens": 50, **params}),
    )


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_decode_step_is_told_in_a_few_bytes(lookahead: bool) -> None:
    """However long the sequences are."""
    num_seqs, prompt_len = 100, 1000
    config = Config(num_kvcache_blocks=1000, kvcache_block_size=256, lookahead=lookahead, enable_prefix_caching=False)
    backend = MirroringBackend(1000, 256)
    backend._compute = lambda rows: [2**17] * len(rows)  # type: ignore[method-assign]
    list(Engine(config, backend).run(request(index, prompt_len) for index in range(num_seqs)))
    decodes = backend.message_bytes[-40:]
    assert max(decodes) < 22 * num_seqs
    assert backend.message_bytes[0] > 1000 * prompt_len // 64


@pytest.mark.parametrize("request_id", [0, -5, 2**80, "", "a", "\ud800 \x1b'\"", "é"])
def test_ids_and_draws_arrive_as_they_are(request_id: int | str) -> None:
    params = {"temperature": 0.7, "top_k": 2**62, "top_p": 0.3, "min_p": 0.1, "seed": 2**64 - 1}
    seq = request(request_id, 3, **params).to_sequence()
    seq.num_scheduled_tokens = 3
    seq.prompt[0] = 2**32 - 1
    order = decode_order(encode(Originals().tell(ScheduledBatch([seq], True))))
    assert isinstance(order, Step)
    (mirror,) = Mirrors().follow(order)
    assert (mirror.request_id, mirror.token_ids) == (request_id, seq.token_ids)
    assert {name: getattr(mirror.sampling_params, name) for name in params} == params
