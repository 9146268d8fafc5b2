"""Tests of what needs an NVIDIA card."""
