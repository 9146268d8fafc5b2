"""Rows on the card: what is sent when, and which token a row begins with."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.runner.decode_rows import DecodeRows, SampledTokens
from nanovllm.runner.sampler import seed_keys
from nanovllm.sampling_params import SamplingParams


def sequence(request_id: int, tokens: list[int], blocks: list[int], temperature: float = 1.0) -> Sequence:
    seq = Sequence(tokens, SamplingParams(temperature=temperature), request_id)
    seq.block_table = blocks
    return seq


def rows() -> DecodeRows:
    return DecodeRows(max_rows=4, max_blocks=3, engine_seed=0, device=torch.device("cpu"))


def test_rows_are_in_the_order_of_the_batch() -> None:
    card = rows()
    a, b = sequence(0, [5, 6], [2]), sequence(1, [7], [1], temperature=0.0)
    assert card.update([a, b], None)
    assert card.token_ids.tolist() == [6, 7, 0, 0]
    assert card.context_lens.tolist() == [2, 1, 0, 0]
    assert card.temperatures.tolist()[:2] == [1.0, 0.0]
    assert card.block_tables[:2, 0].tolist() == [2, 1]
    assert card.seed_keys[:, :2].T.tolist() == seed_keys([a, b], 0).tolist()


def test_an_unchanged_batch_moves_on_by_itself() -> None:
    card = rows()
    a = sequence(0, [5, 6], [2])
    card.update([a], None)
    card.token_ids[0], card.context_lens[0] = 99, 3  # as the step's kernels do
    a.append_token(UNKNOWN_TOKEN)
    a.block_table.append(0)
    assert not card.update([a], None)
    assert (card.token_ids[0], card.context_lens[0]) == (99, 3)
    assert card.block_tables[0, :2].tolist() == [2, 0]


def test_rows_move_when_the_batch_changes() -> None:
    card = rows()
    a, b, c = sequence(0, [5], [3]), sequence(1, [6], [1]), sequence(2, [7], [2])
    card.update([a, b], None)
    assert card.update([b, c], None)
    assert card.token_ids.tolist() == [6, 7, 0, 0]
    assert card.block_tables[:2, 0].tolist() == [1, 2]


def test_unknown_tokens_come_from_the_step_before() -> None:
    card = rows()
    a, b, c = sequence(0, [5], [3]), sequence(1, [6], [1]), sequence(2, [7], [2])
    card.update([a, b], None)
    card.token_ids[:2] = torch.tensor([41, 42])
    for seq in (a, b):
        seq.append_token(UNKNOWN_TOKEN)
    card.update([b, c], SampledTokens(card.token_ids[:2], [a, b]))
    assert card.token_ids.tolist() == [42, 7, 0, 0]


def test_a_sequence_that_comes_back_has_other_blocks() -> None:
    card = rows()
    a = sequence(0, [5], [3])
    card.update([a], None)
    a.num_preemptions, a.block_table = 1, [1]
    assert card.update([a], None)
    assert card.block_tables[0, 0] == 1
