"""Tests of the trace package."""
