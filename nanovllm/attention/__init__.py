"""Attention over the paged KV pool: one protocol (``interface``), and its implementations."""
