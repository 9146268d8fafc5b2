"""The live view: what an engine decides, on a terminal, while it runs or from a trace."""

from viz.live.live_view import LiveView
from viz.live.watching import watch

__all__ = ["LiveView", "watch"]
