"""The two scenarios of the documentation, on the part of the public traces that shows the most."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanovllm.config import Config
from nanovllm.trace.metrics import Metrics, summarize_run
from nanovllm.trace.metrics.collector import MetricsCollector
from nanovllm.trace.metrics.latency import Latency
from sim import simulate
from sim.cluster import ClusterResult, simulate_cluster
from sim.readers import read_azure, read_mooncake

DATA = Path(__file__).parents[3] / "shared" / "data"
AZURE_CODE, MOONCAKE = DATA / "azure2023_code.csv", DATA / "mooncake_synthetic.jsonl"


def burst(policy: str) -> Metrics:
    """The 564 requests from second 850 to 885 of the Azure code trace."""
    config = Config(policy=policy, kvcache_block_size=16, max_num_batched_tokens=2048, max_num_seqs=256)
    collector = MetricsCollector()
    load = read_azure(AZURE_CODE, skip=1977, limit=564)
    simulate(config, load, gpu="h200", model="llama-3.1-8b", record=False, listeners=[collector.apply_all])
    return summarize_run(collector)


def of(latency: Latency | None) -> Latency:
    assert latency is not None
    return latency


@pytest.mark.skipif(not AZURE_CODE.is_file(), reason="needs the Azure code trace, ../shared/data")
def test_in_a_burst_prefill_first_stalls_whoever_runs_and_mixed_does_not() -> None:
    stalling, steady = burst("prefill_first"), burst("mixed")
    assert of(stalling.inter_token_latency_s).max > 10
    assert of(stalling.inter_token_latency_s).p99 > 1
    assert of(steady.inter_token_latency_s).max < 0.055, "no longer than a step of 2,048 tokens"
    first, other = of(stalling.time_to_first_token_s), of(steady.time_to_first_token_s)
    assert other.p99 == pytest.approx(first.p99, rel=0.05), "prompts are computed as fast"
    assert of(steady.end_to_end_s).mean < of(stalling.end_to_end_s).mean / 2


@pytest.fixture(scope="module")
def clusters() -> dict[str, ClusterResult]:
    """Four replicas, the first 600 requests that the Mooncake trace has after 2,000."""
    load = list(read_mooncake(MOONCAKE, skip=2000, limit=600))
    config = Config(policy="mixed", kvcache_block_size=512, max_num_batched_tokens=8192, max_num_seqs=256)
    return {
        router: simulate_cluster(config, load, num_replicas=4, router=router, gpu="h200", model="llama-3.1-8b")
        for router in ("round_robin", "least_loaded", "prefix_aware")
    }


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="needs the Mooncake trace, ../shared/data")
def test_on_shared_prefixes_a_router_that_knows_them_finds_more_and_answers_earlier(
    clusters: dict[str, ClusterResult],
) -> None:
    found = {router: cluster.metrics.hit_rate for router, cluster in clusters.items()}
    assert found["prefix_aware"] > 2 * max(found["round_robin"], found["least_loaded"])
    median = {router: of(cluster.metrics.time_to_first_token_s).p50 for router, cluster in clusters.items()}
    assert median["prefix_aware"] < median["least_loaded"] < median["round_robin"]


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="needs the Mooncake trace, ../shared/data")
def test_the_router_guesses_right_most_of_the_time(clusters: dict[str, ClusterResult]) -> None:
    cluster = clusters["prefix_aware"]
    # Too high where requests of one prefix come before the first of them has been computed.
    assert 0.75 * cluster.expected_hit_tokens < cluster.metrics.hit_tokens <= cluster.expected_hit_tokens
    assert clusters["least_loaded"].expected_hit_tokens == 0
