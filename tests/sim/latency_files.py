"""A directory of small latency tables with round numbers, for the model llama-3.1-8b."""

from __future__ import annotations

from pathlib import Path

from sim.cost_models.latency_tables import ONCE_A_STEP, OPTIONAL_LAYERS, TIMES_A_LAYER

META = """\
vllm_version: 0.19.0
gpu: A card
model: meta-llama/Llama-3.1-8B
skew_fit:
  bucket_axes:
    n_bins: [0, 2, 1000]
    n_labels: [few, many]
    skew_rate_bins: [-0.01, 0.5, 1.01]
    skew_rate_labels: [low, high]
    kv_big_bins: [0, 1000, 100000]
    kv_big_labels: [short, long]
    kp_bins: [-1, 0, 100000]
    kp_labels: [none, some]
  per_tp:
    1: {alpha_default: 0.5}
"""


def write_tables(directory: Path) -> Path:
    """Each dense layer takes as many µs as there are tokens, the head 100 and the sampler one a sequence; attention
    1000 · decodes + 10 · chunk + prefix + length of the decodes."""
    layers = [*ONCE_A_STEP, *(name for name in TIMES_A_LAYER if name not in OPTIONAL_LAYERS)]
    tables = {
        "table_meta.yaml": META,
        "table_dense.csv": _lines("layer,tokens,time_us", [(name, n, n) for name in layers for n in (1, 1001)]),
        "table_per_sequence.csv": _lines(
            "layer,sequences,time_us",
            [("lm_head", 1, 100), ("lm_head", 100, 100), ("sampler", 1, 1), ("sampler", 100, 100)],
        ),
        "table_attention.csv": _lines(
            "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us",
            [
                (chunk, prefix, decodes, length, 1000 * decodes + 10 * chunk + prefix + length)
                for decodes in (0, 1, 4)
                for chunk in (0, 10, 100)
                for prefix in ((0, 1000) if chunk else (0,))
                for length in ((0, 2000) if decodes else (0,))
            ],
        ),
        "table_skew_fit.csv": _lines(
            "pc,n_label,skew_rate_label,kv_big_label,kp_label,alpha,n_samples",
            [(0, "few", "high", "short", "none", 0.25, 9), (100, "few", "high", "short", "none", -0.25, 9)],
        ),
    }
    for name, text in tables.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def _lines(header: str, rows: list[tuple[object, ...]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
