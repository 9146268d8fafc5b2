"""The ``nanovllm`` command: one module a command. The one place where engine, simulator and views meet."""
