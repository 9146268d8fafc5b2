"""Nano-vLLM Lab: an LLM engine whose scheduler decides, whose backend computes and whose trace tells."""

__version__ = "0.1.0"
