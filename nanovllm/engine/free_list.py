"""The blocks that no table holds, in the order in which they will be handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice


class FreeList:
    """A queue of blocks, out of which any block can be taken at the cost of one.

    A block that is taken out of the middle leaves its entry in the queue, and is noted: of its entries, as many are
    passed over as it was taken out, the first ones. (An ordered dictionary needs no such notes. But most blocks come
    and go at the ends, and there a deque is several times as fast.)
    """

    def __init__(self, num_blocks: int) -> None:
        self._queue = deque(range(num_blocks))
        self._num_passed_over: dict[int, int] = {}
        """Block -> how many of its entries don't count any more, for those that have such."""
        self._num_stale = 0
        self._most_entries = 2 * num_blocks

    def __len__(self) -> int:
        return len(self._queue) - self._num_stale

    def __iter__(self) -> Iterator[int]:
        passed_over = self._num_passed_over.copy()
        for block in self._queue:
            if passed_over.get(block):
                passed_over[block] -= 1
            else:
                yield block

    def head(self, count: int) -> list[int]:
        """The next ``count`` blocks, fewer if there are not so many; they stay where they are."""
        queue = self._queue
        if not self._num_stale:
            return list(islice(queue, count))
        blocks: list[int] = []
        while queue and len(blocks) < count:
            block = queue.popleft()
            if block in self._num_passed_over:
                self._pass_over(block)
            else:
                blocks.append(block)
        queue.extendleft(reversed(blocks))
        return blocks

    def _pass_over(self, block: int) -> None:
        self._num_stale -= 1
        self._num_passed_over[block] -= 1
        if not self._num_passed_over[block]:
            del self._num_passed_over[block]

    def pop_head(self, count: int) -> None:
        """Take off what ``head`` has just told."""
        pop = self._queue.popleft
        for _ in range(count):
            pop()

    def remove(self, block: int) -> None:
        """Take a block out, wherever it stands. It must be there."""
        self._num_passed_over[block] = self._num_passed_over.get(block, 0) + 1
        self._num_stale += 1

    def extend(self, blocks: Iterable[int]) -> None:
        """Append blocks at the tail. None of them may be there."""
        self._queue.extend(blocks)
        if len(self._queue) > self._most_entries:
            self._queue = deque(self)
            self._num_passed_over, self._num_stale = {}, 0
