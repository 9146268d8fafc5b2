"""A Ctrl-C, wherever it comes: all who listen to a simulation have heard of the same events."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent
from sim import simulate
from sim.cluster import replica, simulate_cluster
from sim.simulation import pass_on
from tests.sim.runs import SecondPerToken, requests

Heard = list[AnyEvent]
CONFIG = Config(kvcache_block_size=4, num_kvcache_blocks=8, max_num_seqs=4, max_num_batched_tokens=16)
LOAD = requests((9, 6, 0.0), (5, 4, 1.0), (9, 6, 2.0), (3, 8, 90.0))


def simulate_one(listeners: list[Callable[[Heard], object]]) -> None:
    """The events of an engine, for listeners."""
    simulate(CONFIG, LOAD, cost_model=SecondPerToken(), record=False, listeners=listeners)


def simulate_two(listeners: list[Callable[[Heard], object]]) -> None:
    """Those of the second of two."""
    simulate_cluster(CONFIG, LOAD, num_replicas=2, cost_model=SecondPerToken(), record=False, listeners=[[], listeners])


def interrupt_at(call: int) -> Callable[[FrameType, str, object], None]:
    """For ``sys.setprofile``: a Ctrl-C at this call or return outside of this file, counted from now on."""
    left = call

    def profile(frame: FrameType, _what: str, _argument: object) -> None:
        nonlocal left
        left -= frame.f_code.co_filename != __file__
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    return profile


# Python itself loses one that comes while it closes a forgotten generator, and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("run", [simulate_one, simulate_two])
@given(call=st.integers(1, 12_000))
def test_all_listeners_heard_the_same(run: Callable[[list[Callable[[Heard], object]]], None], call: int) -> None:
    whole: Heard = []
    run([whole.extend])
    first: Heard = []
    second: Heard = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (sys.modules[pass_on.__module__], replica):
            patch.setattr(module, "BATCH_EVENTS", 5)
        try:
            sys.setprofile(interrupt_at(call))
            run([first.extend, second.extend])
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
    assert first == second == whole[: len(first)]


@pytest.mark.parametrize("run", [simulate_one, simulate_two])
def test_one_that_comes_while_they_listen_waits(run: Callable[[list[Callable[[Heard], object]]], None]) -> None:
    second: Heard = []
    with pytest.raises(KeyboardInterrupt):
        run([lambda _events: signal.raise_signal(signal.SIGINT), second.extend])
    assert second
