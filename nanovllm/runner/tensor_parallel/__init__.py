"""One model on several GPUs: a process each, rank 0 being the engine's own.

Rank 0 tells the others each step in a message (``messages``); all then compute the same step on their own part of the
model (``nanovllm.models.shard``) and end it with the same tokens.
"""
