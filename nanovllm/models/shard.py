"""How a model is shared out among the ranks of a group (Shoeybi et al. 2019, arXiv:1909.08053).

Each rank has some query heads, with the KV heads that they read; a part of the feed-forward network; and some of the
token ids. Maps into these are cut by output and those out of them by input, so that a layer takes two sums over all
ranks, one after attention and one after the feed-forward network. All else is the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from nanovllm.layers.group import Group, share_of
from nanovllm.model_spec import ModelSpec


def shard_spec(spec: ModelSpec, group: Group) -> ModelSpec:
    """The spec of what this rank holds; hidden size and vocabulary are the whole model's."""
    return replace(
        spec,
        num_heads=spec.num_heads // group.size,
        num_kv_heads=len(kv_heads_of(spec, group)),
        intermediate_size=len(share_of(spec.intermediate_size, group)),
    )


def num_parameters_of(spec: ModelSpec, group: Group) -> int:
    """Weights that a rank holds."""
    num_tables = 1 if spec.tie_word_embeddings else 2
    num_foreign = spec.vocab_size - len(share_of(spec.vocab_size, group))
    return shard_spec(spec, group).num_parameters - num_foreign * spec.hidden_size * num_tables


def kv_heads_of(spec: ModelSpec, group: Group) -> list[int]:
    """The KV heads of this rank, in the order of its query heads, an equal number of which reads each of them.

    Where ranks outnumber KV heads, several hold the same one. Where the query heads of one KV head are spread unevenly,
    a rank may hold that one more than once.
    """
    num_readers = spec.num_heads // spec.num_kv_heads
    num_own = spec.num_heads // group.size
    first, step = group.rank * num_own, gcd(num_own, num_readers)
    return [head // num_readers for head in range(first, first + num_own, step)]


@dataclass(frozen=True)
class Cut:
    """What a rank takes of a whole tensor: along ``dim`` the places ``runs``, one after the other."""

    dim: int
    whole_len: int
    runs: tuple[range, ...]


def cut_of(name: str, spec: ModelSpec, group: Group) -> Cut | None:
    """How the tensor that checkpoints call ``name`` is cut; None: every rank has all of it. ``spec``: of the whole
    model."""
    layer, _, kind = name.rpartition(".")
    layer = layer.rpartition(".")[2]
    heads = share_of(spec.num_heads, group)
    if layer == "q_proj":
        return Cut(0, spec.q_size, _runs_of_heads([*heads], spec.head_dim))
    if layer in ("k_proj", "v_proj"):
        return Cut(0, spec.kv_size, _runs_of_heads(kv_heads_of(spec, group), spec.head_dim))
    if layer in ("gate_proj", "up_proj"):
        return Cut(0, spec.intermediate_size, (share_of(spec.intermediate_size, group),))
    if layer in ("embed_tokens", "lm_head"):
        return Cut(0, spec.vocab_size, (share_of(spec.vocab_size, group),))
    if layer == "o_proj" and kind == "weight":
        return Cut(1, spec.q_size, _runs_of_heads([*heads], spec.head_dim))
    if layer == "down_proj" and kind == "weight":
        return Cut(1, spec.intermediate_size, (share_of(spec.intermediate_size, group),))
    return None


def _runs_of_heads(heads: list[int], head_dim: int) -> tuple[range, ...]:
    runs: list[range] = []
    for head in heads:
        start = head * head_dim
        if runs and runs[-1].stop == start:
            runs[-1] = range(runs[-1].start, start + head_dim)
        else:
            runs.append(range(start, start + head_dim))
    return tuple(runs)
