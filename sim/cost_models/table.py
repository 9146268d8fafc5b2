"""The time of a step as the sum of its layers, each measured alone."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import ConfigError
from nanovllm.model_spec import ModelSpec
from sim.cost_models.host import BLIS_GAP, HostOverhead
from sim.cost_models.latency_tables import LatencyTables
from sim.cost_models.shape import StepShape
from sim.cost_models.step_time import StepTime

_MOST_GRAPH_TOKENS = 512


def vllm_graph_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """The numbers of tokens for which vLLM (0.11 to 0.19) captures CUDA graphs unless told otherwise: 1, 2, 4, then
    every 8th to 256 and every 16th beyond, up to twice ``max_num_seqs``, at most 512."""
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, _MOST_GRAPH_TOKENS + 1, 16))
    return tuple(size for size in sizes if size <= min(2 * max_num_seqs, _MOST_GRAPH_TOKENS))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Adds up the ``tables`` of a model with ``num_layers`` layers, linearly interpolated."""

    tables: LatencyTables
    num_layers: int
    graph_sizes: tuple[int, ...] = ()
    """Sorted. A step of fewer tokens than the largest computes as many as the next of these sizes: CUDA graphs are
    captured for them only."""
    host: HostOverhead = BLIS_GAP
    """Fitted to an engine that works ahead, it is what that does not hide: see ``StepTime.gap_s``."""

    @classmethod
    def of_vllm(cls, tables: LatencyTables, model: ModelSpec, max_num_seqs: int) -> Table:
        """As vLLM runs ``model``. Raises ``ConfigError`` if the tables tell of another one."""
        measured = ModelSpec.preset(tables.model)
        if model != measured:
            raise ConfigError("table", tables.model, "the latencies must be those of the model that is simulated")
        return cls(tables=tables, num_layers=model.num_layers, graph_sizes=vllm_graph_sizes(max_num_seqs))

    def step_time(self, batch: ScheduledBatch) -> StepTime:
        """See ``CostModel``. ``weights_s`` is what a step of one token takes: its products do nothing but read them."""
        shape = StepShape.of(batch)
        num_tokens = self._padded(shape.num_tokens)
        dense_s = self._dense_s(num_tokens) + self.tables.head(shape.num_sequences)
        return StepTime(
            weights_s=min(self._weights_s, dense_s),
            matmul_s=max(0.0, dense_s - self._weights_s),
            attention_s=self.num_layers * self._attention_s(shape),
            gap_s=self.host.of_step(shape.num_sequences, self.num_layers),
            is_extrapolated=not self._is_within(shape, num_tokens),
        )

    @property
    def hardware(self) -> str:
        """See ``MeasuredCostModel``."""
        return self.tables.gpu

    @property
    def num_gpus(self) -> int:
        """See ``MeasuredCostModel``. Tables of several have files of their own, which are not read."""
        return 1

    @property
    def dtype(self) -> str | None:
        """See ``MeasuredCostModel``."""
        return self.tables.dtype

    @property
    def lookahead(self) -> bool:
        """See ``MeasuredCostModel``: ``host`` is what is left of the program where the engine works ahead."""
        return True

    @property
    def measured(self) -> str:
        """See ``BoundedCostModel``."""
        tables = self.tables
        num_decodes, chunk, prefix, context = tables.attention.ends
        return (
            f"steps of up to {tables.layer.knots[-1]:,.0f} tokens, {tables.head.knots[-1]:,.0f} sequences, "
            f"{num_decodes:,.0f} decodes, contexts of {context:,.0f} tokens, chunks of {chunk:,.0f} after {prefix:,.0f}"
        )

    def _is_within(self, shape: StepShape, num_tokens: int) -> bool:
        tables = self.tables
        return (
            num_tokens <= tables.layer.knots[-1]
            and shape.num_sequences <= tables.head.knots[-1]
            and tables.attention.is_within(
                shape.num_decodes, shape.chunk_tokens, shape.equivalent_prefix, shape.longest_decode
            )
        )

    @cached_property
    def _weights_s(self) -> float:
        return self._dense_s(1) + self.tables.head(1)

    def _dense_s(self, num_tokens: int) -> float:
        return self.tables.step(num_tokens) + self.num_layers * self.tables.layer(num_tokens)

    def _padded(self, num_tokens: int) -> int:
        place = bisect_left(self.graph_sizes, num_tokens)
        return self.graph_sizes[place] if place < len(self.graph_sizes) else num_tokens

    def _attention_s(self, shape: StepShape) -> float:
        """Of one layer. Several chunks count as one of as many tokens, after so many that pairs of a new token and one
        that it sees are as many; after none, if that one has more pairs by itself."""
        num_decodes, chunk, prefix = shape.num_decodes, shape.chunk_tokens, shape.equivalent_prefix
        if not num_decodes:
            return self.tables.attention(0, chunk, prefix, 0)
        mean = shape.decode_kv_tokens / num_decodes
        mean_s = self.tables.attention(num_decodes, chunk, prefix, mean)
        if shape.longest_decode == shape.shortest_decode:
            return mean_s
        lengths = (shape.shortest_decode, mean, shape.longest_decode)
        share = self.tables.skew.share(chunk, prefix, num_decodes, *lengths)
        longest_s = self.tables.attention(num_decodes, chunk, prefix, shape.longest_decode)
        return max(0.0, mean_s + share * (longest_s - mean_s))
