"""Tests of ``nanovllm.models``."""
