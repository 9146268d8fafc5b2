"""GGUF to a Hugging Face directory: weights exact, rows in order, a tokenizer that works."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from nanovllm.errors import ModelError
from nanovllm.model_config import RopeSpec
from nanovllm.model_spec import ModelSpec
from nanovllm.models.decoder import Decoder
from nanovllm.runner.gguf_weights import convert_gguf
from nanovllm.runner.model_directory import find_tokenizer, read_eos_token_ids
from nanovllm.runner.weights import load_weights

CONTROL, NORMAL = 3, 1
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "Ġhe"]
SPEC = ModelSpec(
    architecture="LlamaForCausalLM",
    num_layers=1,
    hidden_size=64,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=len(TOKENS),
    max_position_embeddings=256,
    rms_norm_eps=0.5,
    rope=RopeSpec(theta=1000.0),
    tie_word_embeddings=True,
    dtype="float32",
)
Q_SIZE, KV_SIZE, HIDDEN, INTERMEDIATE = SPEC.q_size, SPEC.kv_size, SPEC.hidden_size, SPEC.intermediate_size
# Name in GGUF, name in the checkpoint, shape.
WEIGHTS = [
    ("token_embd", "embed_tokens", (len(TOKENS), HIDDEN)),
    ("output_norm", "norm", (HIDDEN,)),
    ("blk.0.attn_norm", "layers.0.input_layernorm", (HIDDEN,)),
    ("blk.0.attn_q", "layers.0.self_attn.q_proj", (Q_SIZE, HIDDEN)),
    ("blk.0.attn_k", "layers.0.self_attn.k_proj", (KV_SIZE, HIDDEN)),
    ("blk.0.attn_v", "layers.0.self_attn.v_proj", (KV_SIZE, HIDDEN)),
    ("blk.0.attn_output", "layers.0.self_attn.o_proj", (HIDDEN, Q_SIZE)),
    ("blk.0.ffn_norm", "layers.0.post_attention_layernorm", (HIDDEN,)),
    ("blk.0.ffn_gate", "layers.0.mlp.gate_proj", (INTERMEDIATE, HIDDEN)),
    ("blk.0.ffn_up", "layers.0.mlp.up_proj", (INTERMEDIATE, HIDDEN)),
    ("blk.0.ffn_down", "layers.0.mlp.down_proj", (HIDDEN, INTERMEDIATE)),
]


def llama_cpp_order(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows as llama.cpp's converter stores queries and keys: of each head 0, d/2, 1, d/2 + 1, ..."""
    half = len(weight) // num_heads // 2
    rows = [head * 2 * half + i + side * half for head in range(num_heads) for i in range(half) for side in (0, 1)]
    return weight[rows]


def write_gguf(path: Path, pre_tokenizer: str = "smollm") -> dict[str, np.ndarray]:
    """A one-layer model, its matrices quantised. Returns what its weights are, by their names in a checkpoint."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(SPEC.num_layers)
    writer.add_context_length(SPEC.max_position_embeddings)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(SPEC.num_heads)
    writer.add_head_count_kv(SPEC.num_kv_heads)
    writer.add_rope_dimension_count(SPEC.head_dim)
    writer.add_rope_freq_base(SPEC.rope.theta)
    writer.add_layer_norm_rms_eps(SPEC.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(TOKENS)
    writer.add_token_types([CONTROL] * len(SPECIAL) + [NORMAL] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(["h e", "Ġ he"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    random, expected = np.random.default_rng(0), {}
    for gguf_name, name, shape in WEIGHTS:
        weight = random.standard_normal(shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.F32
        if weight.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0 if name == "embed_tokens" else gguf.GGMLQuantizationType.Q4_1
            weight = dequantize(quantize(weight, kind), kind)
        expected[f"model.{name}.weight"] = weight
        if gguf_name.endswith(("attn_q", "attn_k")):
            weight = llama_cpp_order(weight, SPEC.num_heads if gguf_name.endswith("q") else SPEC.num_kv_heads)
        writer.add_tensor(f"{gguf_name}.weight", quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_weights_and_config(tmp_path: Path) -> None:
    expected = write_gguf(tmp_path / "model.gguf")
    convert_gguf(tmp_path / "model.gguf", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(weight, expected[name], rtol=1e-6, atol=1e-6)
    assert ModelSpec.from_directory(tmp_path) == SPEC
    load_weights(Decoder(SPEC, max_position=8, dtype=torch.float32), tmp_path)
    assert read_eos_token_ids(tmp_path) == {2}
    assert json.loads((tmp_path / "generation_config.json").read_text())["bos_token_id"] == 1


def test_tokenizer(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    convert_gguf(tmp_path / "model.gguf", tmp_path)
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer.json"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "he he 12é\n<|im_end|>"
    ids = tokenizer(text).input_ids
    assert [TOKENS[token] for token in ids] == ["he", "Ġhe", "Ġ", "1", "2", "Ã", "©", "Ċ", "<|im_end|>"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "he he 12é\n"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "he"}], tokenize=False) == "he"


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", pre_tokenizer="qwen2")
    with pytest.raises(ModelError, match=r"model\.gguf: architecture and tokenizer .*'qwen2'.* are not supported"):
        convert_gguf(tmp_path / "model.gguf", tmp_path)
