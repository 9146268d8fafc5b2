"""From the scheduled sequences to the tensors that a step computes on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from nanovllm.attention.interface import AttentionInputs
from nanovllm.attention.to_device import to_device
from nanovllm.engine.sequence import Sequence


@dataclass(frozen=True)
class StepInputs:
    """The inputs of one forward pass over ``num_tokens`` tokens of ``num_seqs`` sequences."""

    token_ids: Tensor
    """``[num_tokens]`` int64: sequence after sequence, each its ``num_scheduled_tokens`` next ones."""
    positions: Tensor
    """``[num_tokens]`` int64: each token's place in its sequence, from 0."""
    last_rows: Tensor
    """``[num_seqs]`` int64: the row of each sequence's last token, which alone passes the output head."""
    attention: AttentionInputs


def build_step_inputs(sequences: list[Sequence], block_size: int, device: torch.device) -> StepInputs:
    """Inputs for the tokens ``[num_cached_tokens, num_cached_tokens + num_scheduled_tokens)`` of each sequence.

    How a sequence came to its counters (prompt, chunk, decode, recomputation) makes no difference.
    """
    query_lens = tuple(seq.num_scheduled_tokens for seq in sequences)
    context_lens = tuple(seq.num_cached_tokens + seq.num_scheduled_tokens for seq in sequences)
    block_tables = _pad_block_tables(sequences, context_lens, block_size)
    ends = np.array(context_lens)
    lengths = np.array(query_lens)
    row_ends = lengths.cumsum()
    # A sequence's rows r count up to row_ends, its positions up to ends: the difference is constant within it.
    positions = np.arange(row_ends[-1]) + np.repeat(ends - row_ends, lengths)
    table_rows = np.repeat(np.arange(len(sequences)), lengths)
    slots = block_tables[table_rows, positions // block_size] * block_size + positions % block_size

    return StepInputs(
        token_ids=to_device(_scheduled_token_ids(sequences, int(row_ends[-1])), device),
        positions=to_device(positions, device),
        last_rows=to_device(row_ends - 1, device),
        attention=AttentionInputs(
            query_lens=query_lens,
            context_lens=context_lens,
            slot_mapping=to_device(slots, device),
            block_tables=to_device(block_tables.astype(np.int32), device),
            block_size=block_size,
        ),
    )


def _scheduled_token_ids(sequences: list[Sequence], num_tokens: int) -> np.ndarray:
    slices = (seq.tokens(seq.num_cached_tokens, seq.num_cached_tokens + seq.num_scheduled_tokens) for seq in sequences)
    return np.fromiter(chain.from_iterable(slices), dtype=np.int64, count=num_tokens)


def _pad_block_tables(sequences: list[Sequence], context_lens: tuple[int, ...], block_size: int) -> np.ndarray:
    """``[num_seqs, max_blocks]`` int64: the blocks of the contexts, then zeros. A table may hold more blocks than
    the context needs while the prompt is computed in chunks."""
    tables = np.zeros((len(sequences), -(-max(context_lens) // block_size)), dtype=np.int64)
    for row, seq, context_len in zip(tables, sequences, context_lens, strict=True):
        num_blocks = -(-context_len // block_size)
        row[:num_blocks] = seq.block_table[:num_blocks]
    return tables
