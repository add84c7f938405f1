"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

import dataclasses
import time
from functools import partial
from typing import Any

from benchmarks.common import Stage, machine, median_p95, parsed, table, time_stages
from benchmarks.drawn import draw_queries, faceted_queries
from qbe.cli import common as _cli
from qbe.query import Query
from qbe.util.work import thread_count

PACKAGES = ("onnxruntime", "faiss-cpu", "numpy")
FEW_HITS = 10
OTHERS, WARM_UP = 210, 10  # joint grades of a pair are kept, so that a query is asked but once


def main(argv: list[str]) -> None:
    own: dict[str, Any] = {"index": {}, "topics": {}, "pool": {}, "threads": {}}
    options = parsed("latency", __doc__, argv, hits=1000, rounds=5, **own)
    threads = thread_count(options.threads)
    print(machine(threads, PACKAGES))

    from qbe import default_stages
    from qbe.index.index import open_index
    from qbe.runs import read_pools
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import queries_of, topics_of
    from qbe.search.stages import FIRST_STAGES, Fused, Grades, Projections

    pools = read_pools(options.pool)
    with open_index(options.index, threads=threads) as index:
        queries = queries_of(index, topics_of(index, options.topics))
        size = sum(len(pools[query.query_id]) for query in queries) / len(queries)
        told = f"{len(index)} papers, {len(index.sentence_vectors)} sentences; {size:.0f} papers per pool"
        print(f"{len(queries)} queries, {options.rounds} rounds; {told}; {options.hits} hits\n")
        pipelines = {name: Pipeline(index, stage()) for name, stage in FIRST_STAGES.items()}
        pipelines["fused, projections"] = Pipeline(index, Fused() >> Projections())
        pipelines["fused, grades"] = Pipeline(index, Fused() >> Grades())

        def stages(query: Query, pool: list[str] | None) -> dict[str, Stage]:
            (aspect,) = query.aspects
            outside = dataclasses.replace(aspect.paper, paper_id="query")
            steps = {"query vectors, stored": aspect.paper, "query vectors, encoded": outside}
            found: dict[str, Stage] = {name: partial(index.vectors, each) for name, each in steps.items()}
            if pool is not None:
                found = {}
            for name, pipeline in pipelines.items():
                search = partial(pipeline.search, query, pool=pool)
                found[f"search: {name}"] = partial(search, options.hits, matches=False)
                found[f"search: {name}, {FEW_HITS} hits, matches"] = partial(search, FEW_HITS)
            return found

        whole = time_stages([stages(query, None) for query in queries], options.rounds)
        in_pool = time_stages([stages(query, pools[query.query_id]) for query in queries], options.rounds)
        rows = [
            (name, *median_p95(runs), *(median_p95(in_pool[name]) if name in in_pool else ("", "")))
            for name, runs in whole.items()
        ]
        print(table(("ms per query", "index: median", "p95", "pool: median", "p95"), rows))
        default, times = Pipeline(index, default_stages(index)), list[float]()
        for query in faceted_queries(index, draw_queries(index.layout, OTHERS)):
            begin = time.perf_counter()
            default.search(query, options.hits, matches=False)
            times.append(time.perf_counter() - begin)
        print(f"\ndefault, other queries, once each: {' / '.join(median_p95(times[WARM_UP:]))}")


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)
