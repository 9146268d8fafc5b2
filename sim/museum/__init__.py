"""The engine with one rule changed: what a rule is good for shows when it is missing.

``run`` takes a few requests through the real engine, with a scheduler or a block manager of one's choice;
``side_by_side`` does so twice, by our rules and by another one. Those to choose from stand in ``scheduler_rules`` and
``block_rules``: each is ours but for one rule that some serving engine had, or that one might think of.
``notebooks/08_bug_museum.ipynb`` shows them.
"""

from sim.museum.memory import Misread
from sim.museum.run import Line, MuseumRun, run, side_by_side

__all__ = ["Line", "Misread", "MuseumRun", "run", "side_by_side"]
