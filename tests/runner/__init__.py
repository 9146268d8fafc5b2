"""Tests of ``nanovllm.runner``."""
