"""What hypothesis draws of requests that wait for each other."""

from __future__ import annotations

from hypothesis import strategies as st

from sim.workload import WorkloadRequest
from tests.strategies import MAX_TOKENS, prompts


@st.composite
def closed_loads(draw: st.DrawFn, max_requests: int = 10) -> list[WorkloadRequest]:
    """Requests numbered from 0. Most wait for one to three before them; a few can never run. Not in order."""
    load: list[WorkloadRequest] = []
    for index in range(draw(st.integers(1, max_requests))):
        max_tokens = draw(st.integers(1, MAX_TOKENS))
        if index and draw(st.sampled_from([True, True, True, False])):
            after = draw(st.lists(st.integers(0, index - 1), min_size=1, max_size=3, unique=True))
            comes: dict[str, object] = {"after": after, "delay": draw(st.sampled_from([0, 0, 0.5, 3, 50]))}
        else:
            comes = {"arrival": draw(st.sampled_from([0, 0, 1, 2.5, 7, 60]))}
        load.append(
            WorkloadRequest(
                id=index,
                prompt=draw(prompts()),
                max_tokens=max_tokens,
                output_len=draw(st.one_of(st.none(), st.integers(1, max_tokens))),
                priority=draw(st.integers(-1, 1)),
                **comes,  # type: ignore[arg-type]
            )
        )
    return load
