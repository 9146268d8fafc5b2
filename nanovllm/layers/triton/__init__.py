"""Kernels of our own, in Triton, for the layers around attention; each also runs in Triton's interpreter, on a CPU."""
