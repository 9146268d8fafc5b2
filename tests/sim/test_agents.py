"""Agents: loops whose prompts grow by what is really answered, alone and in teams."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from nanovllm.config import Config
from nanovllm.errors import ConfigError
from nanovllm.trace.events import RequestId, TokensAppended
from sim import simulate
from sim.generators import SubAgents, ToolLoop, agents, fixed, poisson, steps, uniform
from sim.workload import WorkloadRequest, in_order_of_arrival

LOOP = ToolLoop(
    num_calls=uniform(1, 5),
    task_len=uniform(10, 20),
    answer_len=uniform(5, 15),
    tool_output_len=uniform(20, 40),
    mean_tool_s=1.5,
    system_len=64,
)
TEAM = SubAgents(number=3, loop=replace(LOOP, system_len=32, num_calls=uniform(1, 3)))


def prompt_of(call: WorkloadRequest) -> list[int]:
    assert call.prompt is not None
    return call.prompt


def answers_to(calls: list[WorkloadRequest]) -> dict[RequestId, list[int]]:
    """What a simulated engine generates."""
    answers: dict[RequestId, list[int]] = defaultdict(list)
    for event in simulate(Config(kvcache_block_size=16), calls).events:
        if isinstance(event, TokensAppended):
            for request, token in zip(event.requests, event.tokens, strict=True):
                answers[request].append(token)
    return answers


@pytest.mark.parametrize("team", [None, TEAM], ids=["alone", "team"])
def test_a_prompt_holds_what_was_answered_to_the_one_before(team: SubAgents | None) -> None:
    calls = agents(8, LOOP, sub_agents=team, arrivals=poisson(1), seed=5)
    by_id, answers = {call.id: call for call in calls}, answers_to(calls)
    num_later = 0
    for call in calls:
        name, _, number = str(call.id).rpartition("-")
        assert len(answers[call.id]) == call.max_tokens
        if number == "0":
            continue
        num_later += 1
        before = by_id[f"{name}-{int(number) - 1}"]
        said = prompt_of(before) + answers[before.id]
        assert prompt_of(call)[: len(said)] == said
        assert call.arrival is None
        if not (team and number == "1" and "sub" not in name):
            assert (call.after, call.delay > 0) == ((before.id,), True)
            assert 20 <= len(prompt_of(call)) - len(said) <= 40
    assert num_later > 10


def test_who_delegates_reads_the_last_answer_of_each_sub_agent() -> None:
    calls = agents(6, replace(LOOP, num_calls=fixed(3)), sub_agents=TEAM, seed=2)
    by_id, answers = {str(call.id): call for call in calls}, answers_to(calls)
    for number in range(6):
        first, second = by_id[f"{number}-0"], by_id[f"{number}-1"]
        lasts = [
            max(
                (c for c in calls if str(c.id).startswith(f"{number}-sub{sub}-")), key=lambda call: len(prompt_of(call))
            )
            for sub in range(3)
        ]
        read = [token for call in lasts for token in answers[call.id]]
        assert prompt_of(second) == prompt_of(first) + answers[first.id] + read
        begins = [by_id[f"{number}-sub{sub}-0"] for sub in range(3)]
        assert {(call.after, call.delay) for call in begins} == {((first.id,), 0.0)}
        assert (second.after, second.delay) == (tuple(call.id for call in lasts), 0.0)


def test_agents_of_one_kind_begin_alike_and_then_differ() -> None:
    calls = agents(5, LOOP, sub_agents=TEAM, seed=1)
    mains = [prompt_of(call) for call in calls if str(call.id).endswith("-0") and "sub" not in str(call.id)]
    subs = [prompt_of(call) for call in calls if str(call.id).endswith("-0") and "sub" in str(call.id)]
    assert (len(mains), len(subs)) == (5, 15)
    assert len({tuple(prompt[:64]) for prompt in mains}) == len({tuple(prompt[:32]) for prompt in subs}) == 1
    assert mains[0][:32] != subs[0][:32]
    assert len({prompt[64] for prompt in mains} | {prompt[32] for prompt in subs}) == 20


def test_the_same_arguments_the_same_calls() -> None:
    first, again, other = (agents(4, LOOP, sub_agents=TEAM, arrivals=poisson(1), seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    assert first == in_order_of_arrival(first)
    assert len({call.id for call in first}) == len(first)


def test_a_loop_ends_before_its_prompt_is_too_long() -> None:
    loop = replace(LOOP, num_calls=fixed(50), max_prompt_len=300)
    calls = agents(3, loop, seed=1)
    assert max(len(prompt_of(call)) for call in calls) <= 300
    assert all(len([call for call in calls if str(call.id).startswith(f"{number}-")]) < 50 for number in range(3))


def test_a_tool_may_take_no_time() -> None:
    [first, second] = agents(1, replace(LOOP, num_calls=fixed(2), mean_tool_s=0))
    assert (second.after, second.delay) == ((first.id,), 0.0)


def test_an_agent_goes_on_by_itself_where_its_team_cannot_begin() -> None:
    silent = SubAgents(number=2, loop=replace(LOOP, max_prompt_len=1))
    [first, second] = agents(1, replace(LOOP, num_calls=fixed(2)), sub_agents=silent)
    assert (second.id, second.after, second.delay) == ("0-1", (first.id,), 0.0)
    assert len(prompt_of(second)) == len(prompt_of(first)) + first.max_tokens


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: agents(0, LOOP), "num_agents=0 is not allowed"),
        (lambda: agents(1, LOOP, arrivals=steps()), "arrivals in seconds"),
        (lambda: replace(LOOP, mean_tool_s=float("nan")), "mean_tool_s=nan is not allowed"),
        (lambda: replace(LOOP, system_len=-1), "system_len=-1 is not allowed"),
        (
            lambda: agents(2, replace(LOOP, max_prompt_len=70)),
            "max_prompt_len=70 is not allowed: every first prompt is longer",
        ),
        (lambda: replace(LOOP, max_prompt_len=0), "max_prompt_len=0 is not allowed"),
        (lambda: SubAgents(number=0, loop=LOOP), "number=0 is not allowed"),
    ],
)
def test_wrong_numbers_are_named(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigError, match=message):
        wrong()
