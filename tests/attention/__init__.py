"""Tests of ``nanovllm.attention``."""
