"""Synthetic load: lengths and arrivals to choose from; independent requests, conversations and agents made of them.

Everything drawn depends on ``seed`` alone. Lengths, arrivals and prefixes are drawn separately: another distribution
of lengths leaves the arrivals as they were.
"""

from sim.generators.agents import SubAgents, ToolLoop, agents
from sim.generators.arrivals import Arrivals, at_once, gamma, poisson, steps
from sim.generators.from_text import parse_arrivals, parse_length
from sim.generators.independent import SharedPrefixes, independent_requests
from sim.generators.lengths import Length, fixed, lognormal, uniform
from sim.generators.sessions import Conversation, sessions

__all__ = [
    "Arrivals",
    "Conversation",
    "Length",
    "SharedPrefixes",
    "SubAgents",
    "ToolLoop",
    "agents",
    "at_once",
    "fixed",
    "gamma",
    "independent_requests",
    "lognormal",
    "parse_arrivals",
    "parse_length",
    "poisson",
    "sessions",
    "steps",
    "uniform",
]
