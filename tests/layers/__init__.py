"""Tests of ``nanovllm.layers``."""
