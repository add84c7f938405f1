"""Pairs to grade: query papers of an index with candidates found in several ways."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from qbe.errors import CorpusError, UsageError, check_count
from qbe.index.index import Index
from qbe.label.pairs import Pair
from qbe.query import SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD, SHAPES, Query
from qbe.runs import read_run
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Stages, default_stages
from qbe.types import Facet, Paper
from qbe.util.files import StrPath

T = TypeVar("T")

DEPTH = 60  # ranks of a list from which candidates are drawn
BATCH = 8  # query papers searched for together
FAR, ABSTRACT = "far", "abstract"
MIXED = (SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD)
# Sources of candidates: rankings by facet, by mixed queries and by the whole abstract, and what none holds.
POOLS = (*(facet.value for facet in Facet), *MIXED, ABSTRACT, FAR)


def drawn(items: Sequence[T], count: int | None, seed: int) -> list[T]:
    """Return ``count`` random items in their order, or all for None."""
    if count is None:
        return list(items)
    if not 1 <= count <= len(items):
        raise UsageError(f"expected a `sample` from 1 to {len(items):,}, found {count:,}")
    return [items[place] for place in sorted(random.Random(seed).sample(range(len(items)), count))]


def ids_with(index: Index, keywords: Sequence[str]) -> list[str]:
    """Return the ids of the papers whose title or abstract has one of several words or phrases, whole and in
    upper or lower case; raises UsageError where none has.
    """
    any_of = "|".join(r"\s+".join(map(re.escape, each.split())) for each in keywords if each.strip())
    pattern = re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)
    found = [each.paper_id for each in index if pattern.search(f"{each.title}\n{each.abstract}")]
    if not any_of or not found:
        raise UsageError(f"expected papers with one of the `keywords` {', '.join(keywords)}, found none")
    return found


def pool_runs(runs: Sequence[StrPath], depth: int, papers: Mapping[str, str]) -> dict[str, list[Pair]]:
    """Return for each query paper the first ``depth`` papers of each TREC run, each once, by their ids.

    ``papers`` gives the query paper of a topic; without one a query's id is taken for its paper's. A pair's
    pool names the files of the runs that have it.
    """
    check_count("depth", depth)
    found: dict[str, dict[str, list[str]]] = {}
    for path in runs:
        for query_id, hits in read_run(path).rankings.items():
            query = papers.get(query_id, query_id)
            for hit in [hit for hit in hits if hit.paper_id != query][:depth]:
                names = found.setdefault(query, {}).setdefault(hit.paper_id, [])
                if (name := Path(path).stem) not in names:
                    names.append(name)
    return {
        query: [Pair(query, paper_id, "+".join(names)) for paper_id, names in sorted(pools.items())]
        for query, pools in found.items()
    }


def pool_candidates(
    index: Index,
    query_ids: Sequence[str],
    count: int,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
) -> list[Pair]:
    """Return for each query paper ``count`` candidates, taken from POOLS in turn: the best of mixed rankings;
    of the others by turns the best and one drawn from the first DEPTH.

    The first stage alone ranks, so that no reranker chooses what it is to learn from.
    """
    if count < 1:
        raise UsageError(f"expected `candidates` of at least 1, found {count}")
    everything, pairs = index.papers.ids, list[Pair]()
    with SearchSession(index, Stages(default_stages(index).first_stage)) as session:
        for start in range(0, len(query_ids), BATCH):
            some = query_ids[start : start + BATCH]
            papers = [index.label_facets(index.paper(paper_id)) for paper_id in some]
            queries = [list(_queries(paper)) for paper in papers]
            requests = [SearchRequest(query, DEPTH, matches=False) for each in queries for _, query in each]
            rankings = iter(session.batch(requests, rerank=False))
            for paper, named in zip(papers, queries, strict=True):
                lists = {name: [hit.paper_id for hit in next(rankings).hits] for name, _ in named}
                pairs += _chosen(paper.paper_id, lists, everything, count, seed)
                progress(1)
    if not pairs:
        raise UsageError("expected an `index` with candidates for the queries, found none; give a larger one")
    return pairs


def _queries(paper: Paper) -> Iterator[tuple[str, Query]]:
    present = {facet for facet in Facet if paper.facet_positions(facet)[0]}
    yield from ((facet.value, Query(paper, facet)) for facet in Facet if facet in present)
    for name in MIXED:
        if SHAPES[name].keys() <= present:
            yield name, Query.by_facets(paper, SHAPES[name])
    yield ABSTRACT, Query(paper)


def _chosen(
    query_id: str, lists: dict[str, list[str]], everything: Sequence[str], count: int, seed: int
) -> list[Pair]:
    rng = random.Random(f"{seed} {query_id}")
    near = {query_id}.union(*lists.values())
    far = [paper_id for paper_id in everything if paper_id not in near]
    rng.shuffle(far)
    sources = {}
    for name, hits in lists.items():
        left, ordered = list(hits), list[str]()
        while left and name not in MIXED:  # by turns the best and one that is drawn
            ordered.append(left.pop(0))
            if left:
                ordered.append(left.pop(rng.randrange(len(left))))
        sources[name] = iter(hits if name in MIXED else ordered)
    sources[FAR] = iter(far)
    chosen: dict[str, Pair] = {}
    turns = deque(sources.items())
    while turns and len(chosen) < count:
        name, source = turns.popleft()
        found = next((paper_id for paper_id in source if paper_id not in chosen), None)
        if found is not None:
            chosen[found] = Pair(query_id, found, name)
            turns.append((name, source))
    return [chosen[paper_id] for paper_id in sorted(chosen)]


def papers_of(index: Index, pairs: Iterable[Pair]) -> dict[str, Paper]:
    """Return the papers of pairs by id; raises CorpusError where the index lacks some."""
    ids = dict.fromkeys(paper_id for pair in pairs for paper_id in (pair.query_id, pair.paper_id))
    missing = [paper_id for paper_id in ids if paper_id not in index]
    if missing:
        raise CorpusError(
            f"expected the {len(ids):,} papers of the pairs in the index, found {len(missing):,} not there, "
            f"such as {missing[0]}; give the index that holds them, for query ids of runs `topics`"
        )
    return {paper_id: index.paper(paper_id) for paper_id in ids}
