"""What a user may choose about an engine. Checked once, on construction, never changed afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from nanovllm.checks import (
    MAX_SEED,
    MAX_TOKEN_ID,
    MAX_WHOLE_NUMBER,
    check_whole_number,
    is_number,
    is_whole_number,
    whole_number_from,
)
from nanovllm.errors import ConfigError
from nanovllm.own_classes import check_name
from nanovllm.trace.state.pool import MAX_NUM_BLOCKS

_OPTIONS_OF_MIXED = ("admit_by", "max_prefill_tokens_per_request")
OPTIONS_OF_POLICIES: dict[str, tuple[str, ...]] = {
    "prefill_first": (),
    "mixed": _OPTIONS_OF_MIXED,
    "priority": (*_OPTIONS_OF_MIXED, "ageing"),
    "shortest_first": (*_OPTIONS_OF_MIXED, "ageing"),
}
"""The policies, each with the options that only some of them have."""
OPTIONS_OF_REAL_RUNS = frozenset({"device", "attention", "enforce_eager", "num_threads"})
"""They say how a model is really run, and nothing to whoever simulates."""
_OWN_AGEING = {"prefill_first": 0.0, "mixed": 0.0, "priority": 0.01, "shortest_first": 1.0}
_ALL_OPTIONS_OF_POLICIES = tuple(dict.fromkeys(chain.from_iterable(OPTIONS_OF_POLICIES.values())))
POLICIES = tuple(OPTIONS_OF_POLICIES)
ADMISSIONS = ("prompt", "chunk")
DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTIONS = ("auto", "torch", "triton", "flash")

DEFAULT_MODEL_LEN = 4096
"""``max_model_len`` of a real model unless it is chosen: the KV pool must hold one such sequence."""

_FROM_1 = ("max_num_seqs", "max_num_batched_tokens", "kvcache_block_size", "tensor_parallel_size")
_FROM_1_OR_AUTOMATIC = {
    "max_model_len": (MAX_WHOLE_NUMBER, "what the model allows"),
    "num_kvcache_blocks": (MAX_NUM_BLOCKS, "all that fit"),
    "max_prefill_tokens_per_request": (MAX_WHOLE_NUMBER, "no cap"),
    "num_threads": (1024, "one a core"),
}
"""The largest value, and what -1 stands for."""
_CHOICES = {
    "admit_by": ADMISSIONS,
    "device": DEVICES,
    "dtype": DTYPES,
    "attention": ATTENTIONS,
}


def _options_of(policy: str) -> tuple[str, ...]:
    """A policy of one's own may have all of them: its class knows which it reads."""
    return OPTIONS_OF_POLICIES.get(policy, _ALL_OPTIONS_OF_POLICIES)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All options of the engine, with defaults; usable without a model.

    The first group concerns the scheduler and the KV pool and means the same on every backend; the second
    concerns the backend that runs a real model. ``Config.from_options`` refuses unknown names in words.
    """

    max_num_seqs: int = 512
    """The most sequences that may be resident in ``running`` at once."""
    max_num_batched_tokens: int = 16384
    """Token budget: the most prompt tokens that one step computes. Where it decodes as well (not prefill_first), each
    sequence that does takes one of them."""
    max_model_len: int = -1
    """The most tokens of one sequence, prompt and generated tokens together. -1: as many as the model has positions;
    when it really runs, 4096 at most."""
    kvcache_block_size: int = 256
    """Token slots of one KV block; any positive number."""
    num_kvcache_blocks: int = -1
    """Blocks of the KV pool. -1: as many as the backend finds memory for."""
    enable_prefix_caching: bool = True
    """Reuse the KV of leading blocks that an earlier sequence computed."""
    watermark_blocks: int = 0
    """Blocks that stay free when a new request is admitted while others run. Trades a later start for fewer
    preemptions."""
    policy: str = "prefill_first"
    """Who is scheduled when; one of ``POLICIES``, or ``module:Class``, a ``Scheduler`` of one's own."""
    admit_by: str = "prompt"
    """What must fit the KV pool for a request to be admitted: its whole prompt, or only its next chunk; one of
    ``ADMISSIONS``. Not for prefill_first."""
    max_prefill_tokens_per_request: int = -1
    """The most prompt tokens of one request in one step, unless it is alone. -1: as many as the budget has left. Not
    for prefill_first."""
    ageing: float = -1
    """By how much a request gains upon later ones with every step: in levels of priority, or tokens of length for
    shortest_first. 0: never. -1: 0.01 levels, or 1 token. Only for these two."""
    eos: int | tuple[int, ...] = -1
    """End-of-sequence token id, or several. -1: none."""
    lookahead: bool | None = None
    """Decide a step while the backend still computes the one before, where it can be given steps ahead of time. What
    is generated is the same. Unless it is chosen, a real engine does, and a simulation with times that were measured
    so; any other simulation does not."""
    seed: int = 0
    """Source of all draws of requests that bring no seed of their own."""

    model: str = ""
    """A directory or a name. To run: a name on the Hugging Face Hub, or the built-in ``smollm2-135m``; to simulate: one
    that ``nanovllm models`` lists."""
    device: str = "auto"
    """One of ``DEVICES``. ``auto``: a CUDA card if there is one, else the CPU."""
    dtype: str = "auto"
    """One of ``DTYPES``. ``auto``: the type the weights are stored in on CUDA, float32 on a CPU."""
    attention: str = "auto"
    """One of ``ATTENTIONS``. ``auto``: ``triton``, our kernels for NVIDIA cards, where they run; else ``flash``, the
    package flash-attn, where that runs; else ``torch``."""
    gpu_memory_utilization: float = 0.9
    """Share of the card's memory that weights, activations and KV pool may take. On a CPU the pool has a fixed size."""
    tensor_parallel_size: int = 1
    """Number of GPUs that share each layer."""
    enforce_eager: bool = False
    """Never capture CUDA graphs."""
    num_threads: int = -1
    """CPU threads that compute a step. -1: one for each core. On a machine that does other work too, fewer are
    faster: all wait for the slowest."""

    def __post_init__(self) -> None:
        for name in _FROM_1:
            check_whole_number(name, getattr(self, name), 1)
        check_whole_number("watermark_blocks", self.watermark_blocks, 0)
        check_whole_number("seed", self.seed, 0, MAX_SEED)
        for name, (high, default) in _FROM_1_OR_AUTOMATIC.items():
            if getattr(self, name) != -1:
                in_words = f"{whole_number_from(1)}, or -1 for {default}"
                check_whole_number(name, getattr(self, name), 1, high, allowed=in_words)
        for name in ("enable_prefix_caching", "enforce_eager"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, getattr(self, name), "true or false")
        if not isinstance(self.lookahead, bool | None):
            raise ConfigError("lookahead", self.lookahead, "true, false, or None")
        check_name("policy", self.policy, POLICIES)
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(name, getattr(self, name), f"one of {', '.join(allowed)}")
        self._check_policy_options()
        share = self.gpu_memory_utilization
        if not is_number(share) or not 0 < share <= 1:
            raise ConfigError("gpu_memory_utilization", share, "a share above 0, at most 1")
        if not isinstance(self.model, str):
            raise ConfigError("model", self.model, "a directory or a name, as text")
        self._check_eos()

    def _check_policy_options(self) -> None:
        if not is_number(self.ageing) or (self.ageing < 0 and self.ageing != -1):
            raise ConfigError("ageing", self.ageing, "a number from 0 upward, or -1 for the policy's own")
        for name in _ALL_OPTIONS_OF_POLICIES:
            chosen = getattr(self, name)
            if name not in _options_of(self.policy) and chosen != getattr(Config, name):
                having = [policy for policy, names in OPTIONS_OF_POLICIES.items() if name in names]
                raise ConfigError(name, chosen, f"only for policy {', '.join(having)}; this is {self.policy}")

    def _check_eos(self) -> None:
        ids = self.eos if isinstance(self.eos, Sequence) else (self.eos,)
        if not all(is_whole_number(token, -1, MAX_TOKEN_ID) for token in ids):
            raise ConfigError("eos", self.eos, "a token id, several of them, or -1 for none")
        if not isinstance(self.eos, int):
            object.__setattr__(self, "eos", tuple(ids))

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The end-of-sequence ids as a set, empty where there are none."""
        ids = (self.eos,) if isinstance(self.eos, int) else self.eos
        return frozenset(token for token in ids if token >= 0)

    @property
    def ageing_per_step(self) -> float:
        """``ageing``, with the policy's own in place of -1."""
        return _OWN_AGEING.get(self.policy, 0.0) if self.ageing == -1 else self.ageing

    def with_policy(self, policy: str) -> Config:
        """The same options under another policy. What it does not have, and ``ageing``, which means something else to
        each, goes back to its default."""
        if policy == self.policy:
            return self
        kept = set(_options_of(policy)) - {"ageing"}
        dropped = {name: getattr(Config, name) for name in _options_of(self.policy) if name not in kept}
        return replace(self, policy=policy, **dropped)

    def for_positions(self, num_positions: int, default: int = MAX_WHOLE_NUMBER) -> Config:
        """The options for a model that knows ``num_positions`` positions: ``max_model_len`` is never above them, and
        ``default`` if none was chosen. Raises ``ConfigError`` for a choice above them."""
        if self.max_model_len == -1:
            return replace(self, max_model_len=min(num_positions, default))
        if self.max_model_len > num_positions:
            allowed = f"at most {num_positions}, the positions of this model"
            raise ConfigError("max_model_len", self.max_model_len, allowed)
        return self

    def scheduling_options(self) -> dict[str, Any]:
        """What decisions depend on, under the names that traces and workloads use."""
        return {
            "block_size": self.kvcache_block_size,
            "num_blocks": self.num_kvcache_blocks,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "max_model_len": self.max_model_len,
            "enable_prefix_caching": self.enable_prefix_caching,
            "watermark_blocks": self.watermark_blocks,
            "eos": sorted(self.eos_token_ids),
            **self._policy_options(),
        }

    def _policy_options(self) -> dict[str, Any]:
        names = _options_of(self.policy)
        return {name: self.ageing_per_step if name == "ageing" else getattr(self, name) for name in names}

    @classmethod
    def from_options(cls, **options: Any) -> Config:
        """Build a config from keyword options; an unknown name is a ``ConfigError`` that lists the known ones."""
        known = [field.name for field in fields(cls)]
        for name, value in options.items():
            if name not in known:
                raise ConfigError(name, value, f"there is no such option; the options are {', '.join(known)}")
        return cls(**options)
