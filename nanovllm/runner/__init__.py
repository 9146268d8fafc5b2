"""The data plane: loads a model, holds the KV pool, and computes the steps that the scheduler decides."""
