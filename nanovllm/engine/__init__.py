"""The control plane, plain Python: sequences, block manager, scheduler, clock, and the loop that drives a backend."""
