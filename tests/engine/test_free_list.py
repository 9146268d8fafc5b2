"""The free list against a plain list."""

from __future__ import annotations

from hypothesis import given, strategies as st

from nanovllm.engine.free_list import FreeList


@given(num_blocks=st.integers(1, 6), data=st.data())
def test_is_a_queue_out_of_which_anything_can_be_taken(num_blocks: int, data: st.DataObject) -> None:
    free, model, taken = FreeList(num_blocks), list(range(num_blocks)), list[int]()
    for _ in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["pop", "remove", "extend"]))
        if action == "pop":
            count = data.draw(st.integers(0, num_blocks + 1))
            assert free.head(count) == model[:count]
            assert list(free) == model
            count = min(count, len(model))
            free.pop_head(count)
            taken += model[:count]
            del model[:count]
        elif action == "remove" and model:
            block = data.draw(st.sampled_from(model))
            free.remove(block)
            model.remove(block)
            taken.append(block)
        elif action == "extend":
            blocks = [block for block in data.draw(st.permutations(taken)) if data.draw(st.booleans())]
            free.extend(blocks)
            model += blocks
            taken = [block for block in taken if block not in blocks]
        assert list(free) == model
        assert len(free) == len(model)
        assert bool(free) == bool(model)


def test_what_is_taken_out_again_and_again_takes_no_memory() -> None:
    free = FreeList(10)
    for _ in range(1000):
        free.remove(7)
        free.extend([7])
    assert len(free._queue) <= 21
    assert list(free) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 7]
