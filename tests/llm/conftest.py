"""A tiny model on disk with a real tokenizer: all that ``LLM`` needs, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.llm.support import CHAT_TEMPLATE, END, TURN, tokenizer

MAX_POSITIONS = 512


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a random Llama whose generation ends at either of two tokens."""
    return save_model(tmp_path_factory.mktemp("models") / "tiny", head_dim=8)


def save_model(path: Path, *, head_dim: int) -> Path:
    """Make such a model, with a tokenizer. Skips where there is nothing to make it with."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    inner = tokenizer().inner
    config = transformers.LlamaConfig(
        vocab_size=inner.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=None,
        eos_token_id=[inner.token_to_id(END), inner.token_to_id(TURN)],
        pad_token_id=None,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, chat_template=CHAT_TEMPLATE)
    fast.save_pretrained(path)
    return path
