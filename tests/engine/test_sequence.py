"""What a sequence accepts as a prompt, and how its counters go together."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as TokenIds

import numpy as np
import pytest

from nanovllm.engine.request import Request
from nanovllm.engine.sequence import Sequence, SequenceStatus
from nanovllm.errors import RequestError
from nanovllm.sampling_params import SamplingParams


@pytest.mark.parametrize(
    "prompt",
    [[1, 2, 3], (1, 2, 3), range(1, 4), array("q", [1, 2, 3]), np.array([1, 2, 3]), bytes([1, 2, 3])],
    ids=lambda prompt: type(prompt).__name__,
)
def test_any_sequence_of_token_ids_is_a_prompt(prompt: TokenIds[int]) -> None:
    seq = Sequence(prompt)
    assert seq.token_ids == [1, 2, 3]
    assert all(type(token) is int for token in seq.token_ids)


def test_the_prompt_is_copied() -> None:
    prompt = [1, 2, 3]
    seq = Sequence(prompt)
    prompt.append(4)
    assert seq.prompt_token_ids == [1, 2, 3]


@pytest.mark.parametrize("prompt", [[], (), "", np.array([], dtype=np.int64)])
def test_an_empty_prompt_is_refused(prompt: TokenIds[int]) -> None:
    with pytest.raises(RequestError, match=r"^the prompt is empty: at least one token is needed$") as caught:
        Sequence(prompt)
    assert caught.value.reason == "empty_prompt"


@pytest.mark.parametrize(
    ("prompt", "wrong"),
    [
        ([1, -1], "-1"),
        ([1, 2**32], "4294967296"),
        ([1, 2.0], "2.0"),
        ([1, "2"], "'2'"),
        ([1, None], "None"),
        ([[1, 2]], r"\[1, 2\]"),
        ("text", "'t'"),
        ([np.int64(5), -7], "-7"),
        (np.array([5, -7]), r"np.int64\(-7\)"),
    ],
)
def test_what_is_no_token_id_is_named(prompt: TokenIds[int], wrong: str) -> None:
    message = f"^the prompt holds {wrong}: token ids are whole numbers from 0 to 4294967295$"
    with pytest.raises(RequestError, match=message) as caught:
        Sequence(prompt)
    assert caught.value.reason == "bad_token_id"


def test_a_request_makes_a_fresh_sequence_each_time() -> None:
    request = Request(request_id="r", prompt_token_ids=[1, 2], sampling_params=SamplingParams(max_tokens=3))
    one, two = request.to_sequence(), request.to_sequence()
    one.append_token(5)
    assert (two.request_id, two.token_ids, two.max_tokens) == ("r", [1, 2], 3)


def test_counters() -> None:
    seq = Sequence([1, 2, 3], SamplingParams(max_tokens=2), "r")
    assert (seq.num_prompt_tokens, seq.num_tokens, seq.num_completion_tokens) == (3, 3, 0)
    seq.append_token(9)
    assert (seq.num_prompt_tokens, seq.num_tokens, seq.num_completion_tokens) == (3, 4, 1)
    assert (seq.prompt_token_ids, seq.completion_token_ids, seq.last_token) == ([1, 2, 3], [9], 9)
    assert (len(seq), seq.num_tokens_limit) == (4, 5)
    assert (seq.status, seq.is_finished) == (SequenceStatus.WAITING, False)
    assert repr(seq) == "Sequence('r', waiting, prompt 3, tokens 4, cached 0, blocks [])"
