"""Runs in a notebook: figures as pictures, and a replay to step through."""

from viz.notebook.picture import Picture
from viz.notebook.replay import replay

__all__ = ["Picture", "replay"]
