"""What ``nanovllm.trace.jsonl`` is made of: lines and what is wrong with them, compressed and compact files, and
whether a trace goes to the end of its run."""
