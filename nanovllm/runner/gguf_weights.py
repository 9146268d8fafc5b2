"""From a GGUF file of llama.cpp to a directory as Hugging Face lays it out: weights, config and tokenizer.

Covers what the built-in models are: the ``llama`` architecture with the tokenizer of SmolLM2. Weights are dequantised
to float32, as transformers does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from nanovllm.errors import ModelError

_LAYER_WEIGHTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_WEIGHTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL_TOKEN = 3  # llama.cpp's type of tokens such as <|im_end|>


def convert_gguf(path: Path, directory: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json of the
    model in ``path`` into ``directory``. Raises ``ModelError`` for a kind of model that is not covered."""
    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    kind = fields["general.architecture"], fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]
    if kind != ("llama", "gpt2", "smollm"):
        raise ModelError(f"{path}: architecture and tokenizer {kind} are not supported: only llama, gpt2, smollm are")
    config = _config(fields)
    config["tie_word_embeddings"] = all(tensor.name != "output.weight" for tensor in reader.tensors)
    weights = dict(_weights(reader, config))
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    special = {name: fields[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos")}
    special["pad"] = fields["tokenizer.ggml.padding_token_id"]
    generation_config = {f"{name}_token_id": token_id for name, token_id in special.items()}
    _write_json(directory / "config.json", config | generation_config)
    _write_json(directory / "generation_config.json", generation_config)
    _tokenizer(fields).save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(fields, special))


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
    }


# ---- weights -------------------------------------------------------------------------------------------------


def _weights(reader: GGUFReader, config: dict[str, Any]) -> list[tuple[str, np.ndarray]]:
    num_rotated_heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = []
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if match is None:
            weights.append((_OTHER_WEIGHTS[tensor.name], values))
            continue
        layer, kind = match.groups()
        if kind in num_rotated_heads:
            values = _split_halves(values, num_rotated_heads[kind])
        weights.append((f"model.layers.{layer}.{_LAYER_WEIGHTS[kind]}.weight", values))
    return weights


def _split_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo llama.cpp's order of rows. It rotates neighbours (0 with 1, 2 with 3, ...), Hugging Face the two halves of a
    head (0 with head_dim / 2, ...): the even rows of each head go first."""
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])  # [num_heads, head_dim / 2, 2, in_size]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


# ---- tokenizer -----------------------------------------------------------------------------------------------


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE as in GPT-2, with every digit a token of its own (what llama.cpp calls ``smollm``)."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    types = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in types if kind == _CONTROL_TOKEN]
    )
    return tokenizer


def _tokenizer_config(fields: dict[str, Any], special: dict[str, int]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        **{f"{name}_token": tokens[token_id] for name, token_id in special.items()},
        "chat_template": fields["tokenizer.chat_template"],
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
