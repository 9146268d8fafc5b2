"""One engine of a cluster: it takes its turns when its time has come."""

from __future__ import annotations

from nanovllm.engine.arrivals import Arrivals
from nanovllm.engine.request import Request
from nanovllm.engine.steps import StepResult
from nanovllm.trace.events import RequestId
from nanovllm.trace.recorder import BATCH_EVENTS, Batches
from sim.cluster.view import ReplicaView
from sim.engine_setup import SimulatedEngine
from sim.progress import Progress
from sim.simulation import pass_on


class Replica:
    """An engine with a clock of its own, which stands where its step ends or, if it is idle, where it ended.

    A turn computes a step to its end, so that what comes of it is known too early: it is kept until the time of the
    cluster has come there.
    """

    def __init__(self, simulated: SimulatedEngine, batches: Batches) -> None:
        """``batches``: where the engine's events go, handed on between turns."""
        self.simulated = simulated
        self.batches = batches
        self.view = ReplicaView()
        self.num_steps = 0
        self.next_turn_s: float | None = None
        """When it decides its next step; None while it is idle."""
        self._engine = simulated.engine
        self._progress = Progress(simulated.engine)
        self._arrived: list[Request] = []
        self._ends: list[tuple[RequestId, float]] = []
        self._engine.on_end.append(lambda *end: self._ends.append(end))
        self._result: StepResult | None = None

    def send(self, request: Request, time_s: float, num_cached_tokens: int) -> None:
        """Let a request arrive, to be handed over at the next turn; an idle replica takes it at once."""
        self._arrived.append(request)
        self.view.note_sent(request, time_s, num_cached_tokens)
        if self.next_turn_s is None:
            self.simulated.clock.wait_until(time_s)
            self.next_turn_s = time_s

    def tell_result(self, arrivals: Arrivals) -> None:
        """The step before the next turn is through: show what came of it, and tell ``arrivals`` what has ended."""
        if self._result is not None:
            self.view.note_result(self._result)
            self._result = None
        for end in self._ends:
            arrivals.note_ended(*end)
        self._ends.clear()

    def take_turn(self, arrivals: Arrivals) -> None:
        """Hand over what has arrived and carry out the next step. If there is nothing to do, no result is going to be
        told: ``arrivals`` hear at once of what was refused."""
        engine, num_rejected = self._engine, len(self._engine.rejected)
        self._result = engine.turn_if_busy(self._arrived)
        self._arrived = []
        pass_on(self.batches, BATCH_EVENTS)
        for request_id, error in engine.rejected[num_rejected:]:
            if error.reason != "duplicate_id":  # what is under this id belongs to the other one
                self.view.note_end(request_id)
        if self._result is not None:
            self.num_steps += 1
            self._progress.note(self._result)
        self.next_turn_s = self.simulated.clock.now()
        if self._result is None and engine.is_idle:
            self.next_turn_s = None
            self.tell_result(arrivals)
