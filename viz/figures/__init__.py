"""Figures of runs, each drawn from its trace and nothing else.

A figure function takes a trace (``nanovllm.trace.jsonl.Trace``, or the list of its events) and returns a matplotlib
``Figure``; given ``ax`` or ``figure`` it draws in there. Beside most of them stands a function that extracts the same
data without drawing. ``plot`` writes files. matplotlib is imported when something is drawn, pyplot never.
"""

from viz.figures.axis import StepRange
from viz.figures.block_handover import block_handover
from viz.figures.blocks import block_map
from viz.figures.budget import step_tokens
from viz.figures.cliff import CliffPoint, pool_cliff, pool_cliff_data, pool_cliffs
from viz.figures.compare import compare, first_difference
from viz.figures.decision import QueueFrame, QueueInHand, queue_in_hand_data
from viz.figures.decode_gaps import decode_gaps
from viz.figures.handover import BlockHandover, PoolFrame, block_handover_data
from viz.figures.heatmap import heatmap
from viz.figures.historian import history_of
from viz.figures.history import History
from viz.figures.latency import LatencyCurve, latency, latency_curves
from viz.figures.load import kv_use, queue_lengths
from viz.figures.pareto import ParetoPoint, pareto, pareto_frontier
from viz.figures.plot import FORMATS, KINDS, check_picture, draw, picture_path, plot, save
from viz.figures.prediction import prediction, prediction_data
from viz.figures.progress import PromptProgress, prompt_progress_data
from viz.figures.prompt_progress import prompt_progress
from viz.figures.queue_in_hand import queue_in_hand
from viz.figures.reuse import REUSE_PARTS, prefix_reuse
from viz.figures.routing import RoutingPoint, routing
from viz.figures.timeline import timeline
from viz.figures.token_times import TokenTimes

__all__ = [
    "FORMATS",
    "KINDS",
    "REUSE_PARTS",
    "BlockHandover",
    "CliffPoint",
    "History",
    "LatencyCurve",
    "ParetoPoint",
    "PoolFrame",
    "PromptProgress",
    "QueueFrame",
    "QueueInHand",
    "RoutingPoint",
    "StepRange",
    "TokenTimes",
    "block_handover",
    "block_handover_data",
    "block_map",
    "check_picture",
    "compare",
    "decode_gaps",
    "draw",
    "first_difference",
    "heatmap",
    "history_of",
    "kv_use",
    "latency",
    "latency_curves",
    "pareto",
    "pareto_frontier",
    "picture_path",
    "plot",
    "pool_cliff",
    "pool_cliff_data",
    "pool_cliffs",
    "prediction",
    "prediction_data",
    "prefix_reuse",
    "prompt_progress",
    "prompt_progress_data",
    "queue_in_hand",
    "queue_in_hand_data",
    "queue_lengths",
    "routing",
    "save",
    "step_tokens",
    "timeline",
]
