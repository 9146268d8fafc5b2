"""The sequences of a decode step as rows of arrays that stay on the card.

Row ``i`` is the ``i``-th sequence of the batch. While the batch stays the same, the step's graph moves the rows on by
itself: it writes each row's new token and counts its context up, and the host sends nothing but block tables that grew.
When the batch changes, all rows are sent anew, in one copy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nanovllm.engine.sequence import UNKNOWN_TOKEN, Sequence
from nanovllm.runner.sampler import seed_keys

_TOKEN, _SOURCE, _CONTEXT_LEN, _TEMPERATURE, _SEED = 0, 1, 2, 3, slice(4, 6)
_NUM_FIELDS = 6


_Life = tuple[Sequence, int]
"""A sequence between two preemptions, by their count: in another one it has other blocks."""


class SampledTokens(NamedTuple):
    """What a step sampled, on the card: ``tokens`` ``[num_seqs]`` int32, one for each of ``sequences``."""

    tokens: Tensor
    sequences: list[Sequence]


class DecodeRows:
    """Room for ``max_rows`` sequences of up to ``max_blocks`` blocks.

    The views below are what kernels read and write; they stay in place, as CUDA graphs demand.
    """

    def __init__(self, max_rows: int, max_blocks: int, engine_seed: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self._engine_seed = engine_seed
        num_words = (_NUM_FIELDS + max_blocks) * max_rows
        self._rows: dict[_Life, int] = {}
        self._lives: list[_Life] = []
        self._fields = np.zeros((_NUM_FIELDS, max_rows), dtype=np.int32)
        self._tables = np.zeros((max_rows, max_blocks), dtype=np.int32)
        self._num_blocks = np.zeros(max_rows, dtype=np.int64)
        # Two, in turns: one may still be on its way to the card while the next step is written.
        self._sent = [torch.zeros(num_words, dtype=torch.int32, pin_memory=device.type == "cuda") for _ in range(2)]
        self._turn = 0
        self._words = torch.zeros(num_words, dtype=torch.int32, device=device)
        num_field_words = _NUM_FIELDS * max_rows
        self._columns = self._words[:num_field_words].view(_NUM_FIELDS, max_rows)

    @property
    def token_ids(self) -> Tensor:
        """``[max_rows]`` int32: the newest token of each row."""
        return self._columns[_TOKEN]

    @property
    def context_lens(self) -> Tensor:
        """``[max_rows]`` int32: tokens of each row, the newest included; 0: the row is empty."""
        return self._columns[_CONTEXT_LEN]

    @property
    def temperatures(self) -> Tensor:
        """``[max_rows]`` float32; 0: greedy."""
        return self._columns[_TEMPERATURE].view(torch.float32)

    @property
    def seed_keys(self) -> Tensor:
        """``[2, max_rows]`` int32: what a row's draws are hashed from, together with their positions."""
        return self._columns[_SEED]

    @property
    def block_tables(self) -> Tensor:
        """``[max_rows, max_blocks]`` int32."""
        return self._words[self._fields.size :].view(self._tables.shape)

    def on_host(self, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Block tables and context lengths of the first rows, as they were when the batch last changed."""
        return self._tables[:num_rows], self._fields[_CONTEXT_LEN, :num_rows]

    def update(self, sequences: list[Sequence], last: SampledTokens | None) -> bool:
        """Make the rows those of ``sequences``, each with one token to compute. Whether the batch has changed.

        ``last``: what the step before sampled; the host may not know it yet.
        """
        lives = [(seq, seq.num_preemptions) for seq in sequences]
        changed = lives != self._lives
        if changed:
            self._replace(lives)
        num_rows = len(sequences)
        num_blocks = np.fromiter((len(seq.block_table) for seq in sequences), np.int64, num_rows)
        grown = np.flatnonzero(num_blocks > self._num_blocks[:num_rows])
        for row in grown.tolist():
            table = sequences[row].block_table
            first = self._num_blocks[row]
            self._tables[row, first : len(table)] = table[first:]
        self._num_blocks[:num_rows] = num_blocks
        if changed:
            self._fill_in_sources(sequences, last)
            previous = None if last is None else last.tokens.clone()  # it may lie in what is sent anew
            self._send(_TOKEN, num_rows)
            if previous is not None:
                source = self._columns[_SOURCE]
                sampled = previous[source.clamp(min=0).long()]
                self.token_ids.copy_(torch.where(source >= 0, sampled, self.token_ids))
        elif len(grown):
            self._send(_NUM_FIELDS, num_rows)
        return changed

    def pass_over(self) -> None:
        """A step was computed without the rows, maybe of sequences that are in them: their tokens and contexts are sent
        with the next batch, even if it is the same."""
        self._lives = []

    def forget(self) -> None:
        """Send all anew with the next batch, whatever it is."""
        self._lives, self._rows = [], {}

    def _replace(self, lives: list[_Life]) -> None:
        """Move what is known of sequences that stay to their new rows, and write the rows of new ones."""
        num_rows = len(lives)
        sequences = [seq for seq, _ in lives]
        old_rows = np.fromiter((self._rows.get(life, -1) for life in lives), np.int64, num_rows)
        self._fields[:, :num_rows] = self._fields[:, old_rows]
        self._tables[:num_rows] = self._tables[old_rows]
        self._num_blocks[:num_rows] = self._num_blocks[old_rows]
        new_rows = np.flatnonzero(old_rows < 0)
        new = [sequences[row] for row in new_rows.tolist()]
        temperatures = np.array([seq.sampling_params.temperature for seq in new], dtype=np.float32)
        self._fields[_TEMPERATURE, new_rows] = temperatures.view(np.int32)
        self._fields[_SEED, new_rows] = seed_keys(new, self._engine_seed).T
        self._num_blocks[new_rows] = 0
        self._fields[_TOKEN, :num_rows] = [seq.last_token for seq in sequences]
        self._fields[_CONTEXT_LEN, :num_rows] = [seq.num_tokens for seq in sequences]
        self._fields[: _CONTEXT_LEN + 1, num_rows:] = 0  # empty rows are computed too: their tokens must be tokens
        self._lives = lives
        self._rows = {life: row for row, life in enumerate(lives)}

    def _fill_in_sources(self, sequences: list[Sequence], last: SampledTokens | None) -> None:
        """For rows whose token only the card knows: where it stands in ``last``; -1 for the others."""
        self._fields[_SOURCE] = -1
        unknown = np.flatnonzero(self._fields[_TOKEN, : len(sequences)] == UNKNOWN_TOKEN)
        if not len(unknown):
            return
        assert last is not None, "no step has sampled the tokens that are unknown"
        places = {seq: place for place, seq in enumerate(last.sequences)}
        self._fields[_SOURCE, unknown] = [places[sequences[row]] for row in unknown.tolist()]

    def _send(self, first_field: int, num_rows: int) -> None:
        """Copy to the card, from ``first_field`` to the tables of ``num_rows`` rows: alone, or with all else."""
        mirror = self._sent[self._turn]
        self._turn = 1 - self._turn
        max_blocks = self._tables.shape[1]
        begin, fields_end = first_field * len(self._num_blocks), self._fields.size
        end = fields_end + num_rows * max_blocks
        words = mirror.numpy()
        if begin < fields_end:
            words[:fields_end] = self._fields.ravel()
        words[fields_end:end] = self._tables[:num_rows].ravel()
        self._words[begin:end].copy_(mirror[begin:end], non_blocking=True)
