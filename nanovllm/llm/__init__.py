"""Text in, text out: a tokenizer and an engine around a model."""

from nanovllm.llm.llm import LLM

__all__ = ["LLM"]
