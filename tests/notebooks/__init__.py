"""The notebooks run, and what they show is what stands in them. ``python -m tests.notebooks`` stores it anew."""
