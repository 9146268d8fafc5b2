"""A real model, end to end: its text is what transformers writes from the same files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from nanovllm.config import Config
from nanovllm.engine.engine import Engine
from nanovllm.engine.request import Request
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.sampling_params import SamplingParams
from tests.tiny_models import greedy_tokens

NUM_TOKENS = 20
QUESTIONS = ["What is the capital of France?", "Count from 1 to 5.", "Write a haiku about the sea."]


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(smollm2)


@pytest.fixture(scope="module")
def prompts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    options = {"add_generation_prompt": True, "return_dict": False}
    return [tokenizer.apply_chat_template(chat, **options) for chat in chats] + [
        tokenizer("def fibonacci(n):\n    ").input_ids
    ]


def test_greedy_text_is_that_of_transformers(
    smollm2: Path, tokenizer: PreTrainedTokenizerBase, prompts: list[list[int]]
) -> None:
    model = AutoModelForCausalLM.from_pretrained(smollm2)
    model.generation_config.eos_token_id = None
    expected = [tokenizer.decode(greedy_tokens(model, prompt, NUM_TOKENS)) for prompt in prompts]
    del model

    # A budget that cuts the prompts into chunks; the chats share the blocks of their system prompt.
    config = Config(model=str(smollm2), device="cpu", kvcache_block_size=8, max_num_batched_tokens=20)
    engine = Engine(config, ModelRunner(config))
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    sequences = [
        engine.add(Request(request_id=index, prompt_token_ids=prompt, sampling_params=params))
        for index, prompt in enumerate(prompts)
    ]
    for _ in engine.run():
        pass
    texts = [tokenizer.decode(seq.completion_token_ids) for seq in sequences]
    assert texts == expected
    assert texts[0].startswith("The capital of France is Paris.")


def test_the_built_in_model_knows_its_ends_and_its_template(
    smollm2: Path, tokenizer: PreTrainedTokenizerBase, prompts: list[list[int]]
) -> None:
    runner = ModelRunner(Config(model="smollm2-135m", device="cpu", dtype="bfloat16", num_kvcache_blocks=1))
    assert runner.eos_token_ids == {tokenizer.convert_tokens_to_ids("<|im_end|>")}
    assert runner.dtype == torch.bfloat16
    assert runner.spec.num_parameters == 134_515_008
    assert tokenizer.decode(prompts[0]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("text", "token_ids"),
    [
        # As transformers reads the tokenizer out of the GGUF file.
        ("Hello 12345 it's  a\n\n test<|im_end|>", [19556, 216, 33, 34, 35, 36, 37, 357, 506, 216, 253, 1116, 1028, 2]),
        ("日本語 émoji 🎉", [23274, 115, 40993, 179, 120, 248, 26411, 15771, 10381, 15107, 232, 227]),
        ("  lead", [216, 1022]),
    ],
)
def test_tokens_of_known_texts(text: str, token_ids: list[int], tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer(text).input_ids == token_ids
    assert tokenizer.decode(token_ids) == text
