"""The models: one dense decoder, shaped by a ``ModelSpec``."""
