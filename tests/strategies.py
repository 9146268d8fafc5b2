"""What hypothesis draws for the engine's tests: small alphabets, short prompts, tight pools, so that prefixes are
shared, budgets run out and sequences are preempted in nearly every example."""

from __future__ import annotations

from hypothesis import strategies as st

from nanovllm.config import ADMISSIONS, OPTIONS_OF_POLICIES, POLICIES, Config
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams

VOCAB_SIZE = 3
"""Tokens that prompts are made of and that the fake backend samples from: generated blocks are shared as well."""

MAX_PROMPT_LEN = 14
MAX_TOKENS = 12

_POLICY_OPTIONS = {
    "admit_by": st.sampled_from(ADMISSIONS),
    "max_prefill_tokens_per_request": st.one_of(st.just(-1), st.integers(1, 6)),
    "ageing": st.sampled_from([-1, 0, 0.5]),
}

token_ids = st.integers(0, VOCAB_SIZE - 1)


@st.composite
def prompts(draw: st.DrawFn, prefixes: tuple[list[int], ...] = ((0,) * 12, (0, 1) * 6)) -> list[int]:
    """A piece of one of ``prefixes``, then a few tokens of its own; at least one token."""
    prefix = draw(st.sampled_from(prefixes))
    shared = prefix[: draw(st.integers(0, len(prefix)))]
    own = draw(st.lists(token_ids, min_size=0 if shared else 1, max_size=MAX_PROMPT_LEN - len(shared)))
    return [*shared, *own]


@st.composite
def sampling_params(draw: st.DrawFn, max_tokens: int = MAX_TOKENS) -> SamplingParams:
    """Lengths and ends; the fake backend knows no temperature."""
    return SamplingParams(
        max_tokens=draw(st.integers(1, max_tokens)),
        ignore_eos=draw(st.booleans()),
        stop_token_ids=draw(st.sampled_from([(), (), (), (), (2,)])),
    )


@st.composite
def workloads(draw: st.DrawFn, max_requests: int = 7) -> list[Request]:
    """Requests numbered from 0, in order of arrival, by step: often together, sometimes with a pause between."""
    requests: list[Request] = []
    arrival_step = 0
    for index in range(draw(st.integers(1, max_requests))):
        arrival_step += draw(st.sampled_from([0, 0, 1, 2, 5]))
        requests.append(
            Request(
                request_id=index,
                prompt_token_ids=draw(prompts()),
                sampling_params=draw(sampling_params()),
                arrival_step=arrival_step,
                priority=draw(st.integers(-1, 1)),
            )
        )
    return requests


@st.composite
def configs(draw: st.DrawFn, requests: list[Request] | None = None, **options: object) -> Config:
    """Engine options; given ``requests``, a pool in which most of them fit, and not many at once.

    ``options`` are taken as they are.
    """
    policy = options.get("policy") or draw(st.sampled_from(POLICIES))
    block_size = draw(st.integers(1, 5))
    num_tokens = [
        len(request.prompt_token_ids) + request.sampling_params.max_tokens - 1 for request in requests or ()
    ] or [MAX_PROMPT_LEN + MAX_TOKENS - 1]
    num_blocks_of_longest = -(-max(num_tokens) // block_size)
    drawn = {
        "kvcache_block_size": block_size,
        "num_kvcache_blocks": max(1, num_blocks_of_longest + draw(st.integers(-1, 5))),
        "max_num_batched_tokens": draw(st.one_of(st.integers(1, 8), st.integers(9, 60))),
        "max_num_seqs": draw(st.integers(1, 6)),
        "enable_prefix_caching": draw(st.sampled_from([True, True, True, False])),
        "watermark_blocks": draw(st.sampled_from([0, 0, 0, 1, 3])),
        "eos": draw(st.sampled_from([-1, -1, -1, 0, (1, 2)])),
        "lookahead": draw(st.booleans()),
        "policy": policy,
        **{name: draw(_POLICY_OPTIONS[name]) for name in OPTIONS_OF_POLICIES[policy]},
    }
    return Config.from_options(**{**drawn, **options})
