"""What ``nanovllm.trace.replay`` is made of: the state that events add up to, and the laws that it keeps."""
