"""A request's tokens as a bar: what was found, computed, is scheduled now, is still to do, was generated."""

from __future__ import annotations

from collections.abc import Sequence

from nanovllm.trace.state.request_state import RequestState
from viz.palette import COMPUTED, GENERATED, HIT, REMAINING, SCHEDULED, Look

Part = tuple[Look | None, int]
"""So many tokens or cells that look alike; None: still empty."""


def request_parts(state: RequestState, hit_tokens: int, chunk_tokens: int) -> list[Part]:
    """A request's tokens from the first one to the last that it may generate.

    ``chunk_tokens``: what the step computes of a prompt, or of what a preemption has thrown away; 0 in a decode.
    """
    prompt, known = state.num_prompt_tokens, state.num_tokens
    is_settled = state.num_scheduled_tokens == 0  # the step's results are taken in, they count as cached
    cached = state.num_cached_tokens - (chunk_tokens if is_settled else 0)
    in_prompt = max(hit_tokens, min(cached, prompt))
    scheduled = cached + chunk_tokens
    return [
        (HIT, hit_tokens),
        (COMPUTED, in_prompt - hit_tokens),
        (GENERATED, cached - in_prompt),
        (SCHEDULED, chunk_tokens),
        (REMAINING, max(0, prompt - scheduled)),
        (GENERATED, known - max(prompt, scheduled)),
        (None, max(0, prompt + state.max_tokens - known)),
    ]


def budget_parts(chunk_tokens: int, num_decodes: int, budget: int) -> list[Part]:
    """What a step computes of the most it may: in chunks, in decodes, and what is left."""
    return [
        (SCHEDULED, chunk_tokens),
        (GENERATED, num_decodes),
        (REMAINING, max(0, budget - chunk_tokens - num_decodes)),
    ]


def cells_of(parts: Sequence[Part], width: int) -> list[Part]:
    """The parts in ``width`` cells: in proportion, but none that has a token is lost, as long as there is room."""
    parts = [part for part in parts if part[1] > 0]
    total = sum(tokens for _, tokens in parts)
    if not parts or width < len(parts):
        return parts and [(parts[0][0], width)]
    shares = [max(1.0, tokens * width / total) for _, tokens in parts]
    cells = [int(share) for share in shares]
    while (missing := width - sum(cells)) != 0:
        if missing > 0:
            index = max(range(len(cells)), key=lambda i: shares[i] - cells[i])
            cells[index] += 1
        else:
            index = max((i for i in range(len(cells)) if cells[i] > 1), key=lambda i: cells[i] - shares[i])
            cells[index] -= 1
    return [(look, number) for (look, _), number in zip(parts, cells, strict=True)]
