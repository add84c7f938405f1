"""``python -m benchmarks.latency``: milliseconds per query, by stage, over the whole index and in pools.

Everything is warm: each stage has run on every query once before it is timed. A round times one stage for
all queries, then the next stage, so that a change of the machine's load affects all stages equally.
"""

import dataclasses
from collections import defaultdict
from functools import partial
from typing import Any

from benchmarks.common import Stage, interleaved, machine, median_p95, parsed, table
from benchmarks.drawn import draw_queries
from qbe.cli import common as _cli
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
        whole, in_pool = defaultdict[str, list[Stage]](list), defaultdict[str, list[Stage]](list)
        for query in queries:
            paper = query.papers[0]
            outside = dataclasses.replace(paper, paper_id="query")
            whole["query vectors, stored"].append(partial(index.vectors, paper))
            whole["query vectors, encoded"].append(partial(index.vectors, outside))
            for actions, pool in ((whole, None), (in_pool, pools[query.query_id])):
                for name, pipeline in pipelines.items():
                    search = partial(pipeline.search, query, pool=pool)
                    actions[f"search: {name}"].append(partial(search, options.hits, matches=False))
                    actions[f"search: {name}, {FEW_HITS} hits, matches"].append(partial(search, FEW_HITS))
        times, pooled = (interleaved(actions, options.rounds) for actions in (whole, in_pool))
        rows = [
            (name, *median_p95(runs), *(median_p95(pooled[name]) if name in pooled else ("", "")))
            for name, runs in times.items()
        ]
        print(table(("ms per query", "index: median", "p95", "pool: median", "p95"), rows))
        default = Pipeline(index, default_stages(index))
        others = [
            partial(default.search, drawn.query, options.hits, matches=False)
            for drawn in draw_queries(index, OTHERS)
        ]
        once = interleaved({"default": others}, 1, warm_up=False)["default"][WARM_UP:]
        print(f"\ndefault, other queries, once each: {' / '.join(median_p95(once))}")


if __name__ == "__main__":
    _cli.run("benchmarks.latency", main)
