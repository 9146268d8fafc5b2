"""Every option of the engine: what is allowed, and in which words the rest is refused."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given

from nanovllm.config import OPTIONS_OF_POLICIES, Config
from nanovllm.errors import ConfigError, UserError
from tests.strategies import configs

FROM_1 = "a whole number from 1 upward"
FROM_0 = "a whole number from 0 upward"
NO_INT = [1.0, "4", None, True]


@pytest.mark.parametrize(
    ("field", "wrong", "allowed"),
    [
        ("max_num_seqs", [0, -1, *NO_INT], FROM_1),
        ("max_num_batched_tokens", [0, -1, *NO_INT], FROM_1),
        ("max_model_len", [0, -2, *NO_INT], f"{FROM_1}, or -1 for what the model allows"),
        ("num_threads", [0, -2, *NO_INT], f"{FROM_1}, or -1 for one a core"),
        ("kvcache_block_size", [0, -1, *NO_INT], FROM_1),
        ("tensor_parallel_size", [0, -1, *NO_INT], FROM_1),
        ("num_kvcache_blocks", [0, -2, *NO_INT], f"{FROM_1}, or -1 for all that fit"),
        ("watermark_blocks", [-1, *NO_INT], FROM_0),
        ("seed", [-1, *NO_INT], FROM_0),
        ("enable_prefix_caching", [1, 0, "yes", None], "true or false"),
        ("enforce_eager", [1, 0, "yes", None], "true or false"),
        ("lookahead", [1, 0, "on"], "true, false, or None"),
        ("policy", ["fifo", "", None, ["prefill_first"]], "one of prefill_first, mixed, priority, shortest_first"),
        ("admit_by", ["", None, "block"], "one of prompt, chunk"),
        ("max_prefill_tokens_per_request", [0, -2, *NO_INT], f"{FROM_1}, or -1 for no cap"),
        ("ageing", [-0.5, -2, float("nan"), "1", None, True], "a number from 0 upward, or -1 for the policy's own"),
        ("device", ["gpu", "", None], "one of auto, cpu, cuda"),
        ("dtype", ["int8", "", None], "one of auto, float32, bfloat16, float16"),
        ("gpu_memory_utilization", [0, -0.5, 1.1, float("nan"), "0.9", None, True], "a share above 0, at most 1"),
        ("model", [None, 3, ["a"]], "a directory or a name, as text"),
        (
            "eos",
            [-2, 1.0, "2", None, True, (1, -2), (1, "2"), [None], 2**32],
            "a token id, several of them, or -1 for none",
        ),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(field: str, wrong: list[object], allowed: str) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=re.escape(f"{field}={value!r} is not allowed: {allowed}")) as caught:
            Config(**{field: value})
        assert (caught.value.field, caught.value.value) == (field, value)
        assert isinstance(caught.value, (UserError, ValueError))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "high"),
    [
        ("max_num_seqs", 2**63 - 1),
        ("max_num_batched_tokens", 2**63 - 1),
        ("max_model_len", 2**63 - 1),
        ("kvcache_block_size", 2**63 - 1),
        ("tensor_parallel_size", 2**63 - 1),
        ("watermark_blocks", 2**63 - 1),
        ("num_kvcache_blocks", 2**25),
        ("num_threads", 1024),
        ("seed", 2**64 - 1),
    ],
)
def test_a_number_that_is_too_large_is_told_the_largest(field: str, high: int) -> None:
    assert getattr(Config(**{field: high}), field) == high
    for value in (high + 1, 10**400):
        with pytest.raises(ConfigError, match=rf"^{field}=\d+(\.\.\.\d+)? is not allowed: at most {high}$"):
            Config(**{field: value})


@pytest.mark.parametrize(
    ("eos", "ids"),
    [(-1, set()), (0, {0}), (7, {7}), ((7, 8), {7, 8}), ([7, 7], {7}), ((), set()), ((-1,), set())],
)
def test_end_of_sequence_ids(eos: object, ids: set[int]) -> None:
    assert Config(eos=eos).eos_token_ids == ids


def test_the_smallest_engine() -> None:
    Config(max_num_seqs=1, max_num_batched_tokens=1, max_model_len=1, kvcache_block_size=1, num_kvcache_blocks=1)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^max_seqs=3 is not allowed: there is no such option; the options are "
    ) as caught:
        Config.from_options(max_num_seqs=2, max_seqs=3)
    assert all(field.name in str(caught.value) for field in fields(Config))


def test_options_come_through() -> None:
    config = Config.from_options(max_num_seqs=3, eos=[5, 4])
    assert (config.max_num_seqs, config.eos) == (3, (5, 4))
    assert config == Config(max_num_seqs=3, eos=(5, 4))
    assert hash(config) == hash(Config(max_num_seqs=3, eos=(5, 4)))


@pytest.mark.parametrize(
    ("chosen", "default", "expected"), [(-1, None, 512), (-1, 300, 300), (-1, 600, 512), (512, 300, 512), (9, 300, 9)]
)
def test_no_sequence_is_longer_than_the_model_has_positions(chosen: int, default: int | None, expected: int) -> None:
    defaults = () if default is None else (default,)
    assert Config(max_model_len=chosen).for_positions(512, *defaults).max_model_len == expected
    with pytest.raises(ConfigError, match="max_model_len=513 is not allowed: at most 512, the positions"):
        Config(max_model_len=513).for_positions(512, *defaults)


@pytest.mark.parametrize(
    ("policy", "option", "value", "having"),
    [
        ("prefill_first", "admit_by", "chunk", "mixed, priority, shortest_first; this is prefill_first"),
        (
            "prefill_first",
            "max_prefill_tokens_per_request",
            8,
            "mixed, priority, shortest_first; this is prefill_first",
        ),
        ("mixed", "ageing", 0, "priority, shortest_first; this is mixed"),
    ],
)
def test_an_option_of_another_policy_is_refused(policy: str, option: str, value: object, having: str) -> None:
    expected = f"{option}={value!r} is not allowed: only for policy {having}"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        Config(policy=policy, **{option: value})


def test_another_policy_keeps_the_options_that_it_has() -> None:
    config = Config(policy="priority", admit_by="chunk", ageing=0.5, max_num_seqs=3)
    assert config.with_policy("priority") is config
    assert config.with_policy("mixed") == Config(policy="mixed", admit_by="chunk", max_num_seqs=3)
    assert config.with_policy("shortest_first") == Config(policy="shortest_first", admit_by="chunk", max_num_seqs=3)
    assert config.with_policy("prefill_first") == Config(max_num_seqs=3)
    with pytest.raises(ConfigError, match="policy='fifo' is not allowed"):
        config.with_policy("fifo")


def test_a_config_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().max_num_seqs = 3


@given(config=configs())
def test_what_decisions_depend_on_is_told_under_the_names_of_traces(config: Config) -> None:
    options = config.scheduling_options()
    own = {"priority": 0.01, "shortest_first": 1.0}
    told = {"ageing": own.get(config.policy) if config.ageing == -1 else config.ageing}
    assert options == {
        "block_size": config.kvcache_block_size,
        "num_blocks": config.num_kvcache_blocks,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_num_seqs": config.max_num_seqs,
        "max_model_len": config.max_model_len,
        "enable_prefix_caching": config.enable_prefix_caching,
        "watermark_blocks": config.watermark_blocks,
        "eos": sorted(config.eos_token_ids),
        **{name: told.get(name, getattr(config, name)) for name in OPTIONS_OF_POLICIES[config.policy]},
    }
