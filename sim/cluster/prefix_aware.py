"""The router that sends a request to where its prefix is cached, unless too much is waiting there."""

from __future__ import annotations

from collections.abc import Sequence

from nanovllm.config import Config
from nanovllm.engine.request import Request
from sim.block_hashes import block_hashes
from sim.cluster.prefix_index import PrefixIndex
from sim.cluster.routers import Route
from sim.cluster.view import ReplicaView


class PrefixAware:
    """The replica with the least to do once it has the request: its outstanding tokens less those of the prompt that
    it has cached.

    So a prefix of 1,000 tokens is worth a detour as long as that replica is less than 1,000 tokens behind the others;
    then another one computes it, and has it cached too. Of equals it takes the one that got its last request longest
    ago, so that new prefixes spread over all caches.
    """

    def __init__(self, config: Config, num_replicas: int) -> None:
        self._block_size = config.kvcache_block_size
        # A replica cannot have more cached than its pool holds.
        max_blocks = config.num_kvcache_blocks if config.enable_prefix_caching else 0
        self._indexes = [PrefixIndex(max_blocks) for _ in range(num_replicas)]

    def route(self, request: Request, replicas: Sequence[ReplicaView]) -> Route:
        """See ``Router``."""
        hashes = block_hashes(request.prompt_token_ids, self._block_size)
        # An engine never reuses the last block of a prompt: something must be left to compute.
        reusable = hashes[: (len(request.prompt_token_ids) - 1) // self._block_size]
        cached = [index.num_leading(reusable) * self._block_size for index in self._indexes]

        def cost(replica: int) -> tuple[int, float]:
            return replicas[replica].outstanding_tokens - cached[replica], replicas[replica].last_sent_s

        chosen = min(range(len(replicas)), key=cost)
        self._indexes[chosen].add(hashes)
        return Route(chosen, cached[chosen])
