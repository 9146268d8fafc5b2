"""Attention kernels of our own, in Triton; each also runs in Triton's interpreter, on a CPU."""
