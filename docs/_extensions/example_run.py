"""Simulates the run that the first page shows, and draws it: what is shown is what the engine does today."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from nanovllm.config import Config
from nanovllm.trace.jsonl import read_trace, write_trace
from sim import simulate
from viz import figures
from viz.web import write_page

LOAD = Path(__file__).with_name("example_load.jsonl")
CONFIG = Config(kvcache_block_size=8, num_kvcache_blocks=30, max_num_batched_tokens=48, max_num_seqs=6)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", draw)
    app.connect("build-finished", write_replay)
    return {"parallel_read_safe": True}


def trace_path(app: Sphinx) -> Path:
    """Where the trace of the run is kept while pages are built."""
    return Path(app.srcdir) / "_build" / "example" / "run.jsonl"


def draw(app: Sphinx) -> None:
    """Simulate the run, and draw the figure of it."""
    path = trace_path(app)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_trace(simulate(CONFIG, LOAD, gpu="l4").events, path)
    figures.plot(read_trace(path), "timeline,kv", path.with_suffix(".svg"))


def write_replay(app: Sphinx, error: Exception | None) -> None:
    """Put the replay of the run beside the first page."""
    if error is None and app.builder.format == "html":
        write_page(read_trace(trace_path(app)), Path(app.outdir) / "replay.html")
