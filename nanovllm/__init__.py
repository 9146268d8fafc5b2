"""Nano-vLLM Lab: an LLM serving engine whose scheduler decides, whose backend computes, and whose trace tells."""

__version__ = "0.1.0"
