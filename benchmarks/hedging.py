"""``python -m benchmarks.hedging``: latency of many shards, with and without hedged requests, simulated.

Service times are measured: one shard of an index answers the queries of a topics file, one at a time. The
simulation draws from them. Each query goes to one replica of every shard and ends with the last answer;
replicas serve first come, first served; queries arrive at random (Poisson). Some answers take ten times as
long, as beside a busy neighbour. A hedged request is not taken back: both replicas serve it.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import machine, positive, table

SLOW = 10.0
"""How many times as long a slow answer takes."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.hedging", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, default=Path("indexes/whole-4"), metavar="DIR")
    parser.add_argument("--topics", type=Path, default=Path("qrels/topics.tsv"), metavar="FILE")
    parser.add_argument("--shards", type=positive, default=200, help="default: %(default)s")
    parser.add_argument("--queries", type=positive, default=3000, help="default: %(default)s")
    parser.add_argument("--slow", type=float, default=0.01, help="share of answers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    return parser


class Load(NamedTuple):
    """What is simulated: the share of their time that replicas would work without hedging, replicas of each
    shard, and after how many seconds another one is asked (None: never).
    """

    busy: float
    replicas: int
    hedge: float | None


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    print(machine(1, ("faiss-cpu", "pyserini")))
    services = measured(options.index, options.topics)
    print(f"service times, ms: median {1000 * np.median(services):.1f}, p95 {1000 * _p(services, 95):.1f}")
    hedge = _p(services, 95)
    rows = []
    for busy in (0.1, 0.3, 0.5):
        for load in (Load(busy, 1, None), Load(busy, 2, None), Load(busy, 2, hedge)):
            random = np.random.default_rng(options.seed)
            times, sent = simulated(services, options.shards, options.queries, options.slow, load, random)
            way = f"{load.replicas} replica{'s' * (load.replicas > 1)}{', hedged' * (load.hedge is not None)}"
            spread = " / ".join(f"{1000 * _p(times, share):.0f}" for share in (50, 95, 99))
            rows.append([f"{busy:.0%}", way, spread, f"{sent - 1:+.1%}"])
    print(table(["load", "", "median / p95 / p99, ms", "more requests"], rows))


def measured(index: Path, topics: Path) -> NDArray[np.float64]:
    """Seconds (queries,) that the first shard takes for both of its first stages, one query at a time."""
    from qbe.search.vectors import encode_queries, prepare_queries

    from qbe.cluster.placement import shard_count
    from qbe.cluster.shard import Shard
    from qbe.index.index import Index
    from qbe.parallel import Workers
    from qbe.search.first_stages import query_text
    from qbe.search.queries import queries_of, topics_of

    with Index(index) as opened, opened.reading() as reader:
        queries = prepare_queries(
            opened, queries_of(opened, topics_of(opened, topics)), Workers(), facets="given", explain=False
        )
        prepared = encode_queries(opened, reader, queries, Workers())
        generation, shards = reader.generation, shard_count(reader._snapshot.segments)
    seconds = []
    with Shard(index, 0, shards) as shard:
        corpus = shard.statistics(generation)
        for round_ in range(3):
            for query in prepared:
                aspect = query.aspects[0]
                begin = time.perf_counter()
                terms = shard.terms(generation, corpus, query_text(aspect))
                shard.best(generation, corpus, terms, {term.text: term.documents for term in terms}, 300)
                shard.nearest(generation, aspect.sentences, 2000)
                if round_:  # the first one warms up
                    seconds.append(time.perf_counter() - begin)
    return np.array(seconds)


def simulated(
    services: NDArray[np.float64],
    shards: int,
    queries: int,
    slow: float,
    load: Load,
    random: np.random.Generator,
) -> tuple[NDArray[np.float64], float]:
    """Seconds (queries,) of each query, and how many requests there were to each shard for each query.

    >>> random = np.random.default_rng(0)
    >>> simulated(np.array([0.01]), 3, 2, 0.0, Load(0.001, 1, None), random)[0].round(6).tolist()
    [0.01, 0.01]
    """
    mean = services.mean() * (1 + slow * (SLOW - 1))
    arrivals = np.cumsum(random.exponential(mean / (load.busy * load.replicas), queries))
    ends = np.zeros((shards, queries))
    sent = 0
    for shard in range(shards):
        draws = random.choice(services, 2 * queries) * np.where(random.random(2 * queries) < slow, SLOW, 1)
        shard_ends, requests = _served(arrivals, draws, load)
        ends[shard] = shard_ends
        sent += requests
    return ends.max(axis=0) - arrivals, sent / (shards * queries)


def _served(
    arrivals: NDArray[np.float64], draws: NDArray[np.float64], load: Load
) -> tuple[NDArray[np.float64], int]:
    """When each query's answer of one shard is there, and the number of requests."""
    free = [0.0] * load.replicas
    ends = np.full(len(arrivals), np.inf)
    # Requests in the order of their moments: (moment, query, replica).
    events = [(moment, query, query % load.replicas) for query, moment in enumerate(arrivals.tolist())]
    heapq.heapify(events)
    drawn = iter(draws.tolist())
    requests = 0
    first = set()
    while events:
        moment, query, replica = heapq.heappop(events)
        if query in first and ends[query] <= moment:
            continue  # answered before it was hedged
        end = max(moment, free[replica]) + next(drawn)
        free[replica] = end
        ends[query] = min(ends[query], end)
        requests += 1
        if query not in first and load.hedge is not None:
            heapq.heappush(events, (moment + load.hedge, query, (replica + 1) % load.replicas))
        first.add(query)
    return ends, requests


def _p(values: NDArray[np.float64], share: float) -> float:
    return float(np.percentile(values, share))


if __name__ == "__main__":
    main(sys.argv[1:])
