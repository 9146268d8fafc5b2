"""config.json of all years and families, what is refused, and the numbers that follow from a spec."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nanovllm.errors import ModelError
from nanovllm.model_config import RopeSpec
from nanovllm.model_spec import ModelSpec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
LLAMA3_SCALING = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}


def config(family: str = "Llama", **changes: Any) -> dict[str, Any]:
    """A config with some fields set, and those set to ``...`` removed."""
    merged = LLAMA | {"architectures": [f"{family}ForCausalLM"]} | changes
    return {name: value for name, value in merged.items() if value is not ...}


# ---- what is read --------------------------------------------------------------------------------------------


def test_sizes_and_defaults() -> None:
    spec = ModelSpec.from_config(config())
    assert spec == ModelSpec(
        architecture="LlamaForCausalLM",
        num_layers=16,
        hidden_size=2048,
        intermediate_size=8192,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        vocab_size=128256,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope=RopeSpec(theta=500000.0),
        tie_word_embeddings=True,
        dtype="bfloat16",
    )


def test_published_config_is_the_preset() -> None:
    published = config(head_dim=64, rope_scaling=LLAMA3_SCALING | {"rope_type": "llama3"})
    assert ModelSpec.from_config(published) == ModelSpec.preset("Llama-3.2-1B")


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_what_a_family_implies(family: str) -> None:
    spec = ModelSpec.from_config(config(family))
    assert (spec.qk_norm, spec.qkv_bias) == (family == "Qwen3", family == "Qwen2")
    assert not spec.output_bias
    assert not spec.mlp_bias


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_bias_flags_count_where_the_family_knows_them(family: str) -> None:
    spec = ModelSpec.from_config(config(family, attention_bias=True, mlp_bias=True))
    assert spec.qkv_bias == (family != "Mistral")
    assert spec.output_bias == (family in ("Llama", "Qwen3"))
    assert spec.mlp_bias == (family == "Llama")


def test_head_dim_is_taken_or_derived() -> None:
    assert ModelSpec.from_config(config("Qwen3", head_dim=128)).head_dim == 128
    assert ModelSpec.from_config(config("Qwen3", head_dim=None)).head_dim == 64


def test_first_llama_configs_name_neither_kv_heads_nor_theta() -> None:
    spec = ModelSpec.from_config(config(num_key_value_heads=..., rope_theta=..., rope_scaling=...))
    assert (spec.num_kv_heads, spec.rope) == (32, RopeSpec(theta=10000.0))


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": ..., "dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16", "dtype": "float32"}, "float32"),
        ({"torch_dtype": ...}, "float32"),
        ({"torch_dtype": None}, "float32"),
    ],
)
def test_dtype_under_either_name(fields: dict[str, Any], dtype: str) -> None:
    assert ModelSpec.from_config(config(**fields)).dtype == dtype


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_theta": 7.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_theta": 7.0, "rope_scaling": ..., "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        {
            "rope_theta": ...,
            "rope_scaling": ...,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0},
        },
    ],
)
def test_rope_in_every_spelling(fields: dict[str, Any]) -> None:
    expected = RopeSpec(theta=7.0, type="linear", factor=2.0)
    assert ModelSpec.from_config(config(**fields)).rope == expected


def test_sliding_windows_that_hide_nothing_are_no_obstacle() -> None:
    for family, fields in (
        ("Mistral", {"sliding_window": None}),
        ("Mistral", {"sliding_window": 131072}),
        ("Qwen2", {"sliding_window": 4096, "use_sliding_window": False}),
        ("Qwen2", {"sliding_window": 4096}),
        ("Qwen3", {"layer_types": ["full_attention"] * 16}),
    ):
        ModelSpec.from_config(config(family, **fields))


# ---- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "fields", "named"),
    [
        ("Qwen3Moe", {}, "architectures=['Qwen3MoeForCausalLM']"),
        ("Llama", {"architectures": ...}, "architectures=None"),
        ("Llama", {"architectures": ["LlamaForCausalLM", "Other"]}, "architectures="),
        ("Llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config={'quant_method': 'fp8'}"),
        ("Llama", {"num_local_experts": 8}, "num_local_experts=8"),
        ("Llama", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ("Mistral", {"sliding_window": 4096}, "sliding_window=4096"),
        ("Qwen2", {"sliding_window": 4096, "use_sliding_window": True}, "sliding_window=4096"),
        ("Qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types='sliding_attention'"),
        ("Llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type='yarn'"),
        ("Llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters.rope_type='longrope'"),
        ("Llama", {"rope_scaling": "linear"}, "rope_scaling='linear'"),
        ("Llama", {"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor=-1"),
        (
            "Llama",
            {"rope_scaling": LLAMA3_SCALING | {"rope_type": "llama3", "low_freq_factor": 4.0}},
            "rope_scaling.high_freq_factor=4.0",
        ),
        ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("Llama", {"dtype": "float8_e4m3fn"}, "dtype='float8_e4m3fn'"),
        ("Llama", {"num_key_value_heads": 5}, "num_key_value_heads=5"),
        ("Llama", {"hidden_size": 2050}, "hidden_size=2050"),
        ("Llama", {"head_dim": 63}, "head_dim=63"),
        ("Llama", {"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ("Llama", {"vocab_size": 1.5}, "vocab_size=1.5"),
        ("Llama", {"vocab_size": True}, "vocab_size=True"),
        ("Llama", {"rms_norm_eps": 0}, "rms_norm_eps=0"),
        ("Llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'"),
    ],
)
def test_unsupported_is_refused_by_name(family: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError) as caught:
        ModelSpec.from_config(config(family, **fields), "somewhere/config.json")
    assert str(caught.value).startswith(f"somewhere/config.json: {named}")
    assert "is not allowed: " in str(caught.value)


ANY_VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 2**62, 2**64, 10**400, -0.5, 1e300, math.inf, math.nan),
    *("", "x", [], [0], ["x"], [[]], {}, {"a": 1}),
]


def test_any_value_of_any_field_is_read_or_refused() -> None:
    whole = {**config("Mistral"), "rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}, "head_dim": 64}
    whole |= dict.fromkeys(("dtype", "layer_types", "sliding_window", "use_sliding_window", "attention_bias"))
    whole |= dict.fromkeys(("mlp_bias", "num_experts", "quantization_config", "partial_rotary_factor"))
    for family in ("Llama", "Mistral", "Qwen2", "Qwen3"):
        fields = {**whole, "architectures": [f"{family}ForCausalLM"]}
        changed = [{**fields, name: value} for name in fields for value in ANY_VALUES]
        rope = fields["rope_scaling"]
        changed += [{**fields, "rope_scaling": {**rope, name: value}} for name in rope for value in ANY_VALUES]
        for each in changed:
            with suppress(ModelError):
                assert ModelSpec.from_config(each).weight_bytes > 0


@pytest.mark.parametrize(
    ("family", "field"),
    [
        *(("Llama", field) for field in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")),
        *(("Llama", field) for field in ("num_hidden_layers", "max_position_embeddings", "rms_norm_eps")),
        *((family, "num_key_value_heads") for family in ("Mistral", "Qwen2", "Qwen3")),
        *((family, "rope_theta") for family in ("Mistral", "Qwen2", "Qwen3")),
    ],
)
def test_missing_fields_are_named(family: str, field: str) -> None:
    with pytest.raises(ModelError, match=rf"^config.json: {field} is missing: a .* is needed$"):
        ModelSpec.from_config(config(family, **{field: ...}))


def test_rope_parameters_without_theta_anywhere_are_refused() -> None:
    """Falling back to the default here is how other loaders came to write nonsense."""
    fields = {"rope_theta": ..., "rope_scaling": ..., "rope_parameters": {"rope_type": "default"}}
    with pytest.raises(ModelError, match="rope_theta is missing"):
        ModelSpec.from_config(config(**fields))


def test_from_directory(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ModelError, match=r"config.json: cannot be read"):
        ModelSpec.from_directory(tmp_path)
    path.write_text("{")
    with pytest.raises(ModelError, match=r"config.json: is not JSON"):
        ModelSpec.from_directory(tmp_path)
    path.write_text("[]")
    with pytest.raises(ModelError, match="holds a list, a JSON object is needed"):
        ModelSpec.from_directory(tmp_path)
    path.write_text(json.dumps(config(vocab_size=0)))
    with pytest.raises(ModelError, match=r"config.json: vocab_size=0"):
        ModelSpec.from_directory(str(tmp_path))
    path.write_text(json.dumps(config()))
    assert ModelSpec.from_directory(tmp_path) == ModelSpec.from_config(config())


def test_a_name_is_a_directory_if_there_is_one_else_a_preset_of_any_organisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    published = ModelSpec.preset("llama-3.1-8b")
    for name in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "mirrors/meta-llama/Llama-3.1-8B"):
        assert ModelSpec.find(name) == ModelSpec.preset(name) == published
    with pytest.raises(ModelError, match=r"^model 'openai/gpt-2' is not known: one of smollm2-135m, "):
        ModelSpec.find("openai/gpt-2")
    own = tmp_path / "meta-llama" / "Llama-3.1-8B"
    own.mkdir(parents=True)
    (own / "config.json").write_text(json.dumps(config()))
    assert ModelSpec.find("meta-llama/Llama-3.1-8B") == ModelSpec.from_config(config())
    assert ModelSpec.preset("meta-llama/Llama-3.1-8B") == published
