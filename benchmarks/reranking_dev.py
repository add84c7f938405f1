"""Figures on which the rerankers' weights were chosen, on graded pairs of arXiv papers.

    QBE_DATA=... python -m benchmarks.reranking_dev [--reranker FOLDER] [--pairs FILE] [--index DIR]

Builds an index over the papers of facet-judgments and of the pairs (unless --index names one that holds
them), ranks each query's candidates with each first stage and with the facet rerankers, and prints by facet
mean Spearman with the grades, and NDCG%20 as CSFCube's scorer computes it; and for each pair of facets the
shares of crossed pairs (`qbe.evaluate.crossed`) that are ranked right by the first, by the second, by both.
The last rows are those of fused with the reranker at its default share, for values of `background_penalty`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from qbe.encode.aspect import EncodedAspect
from qbe.evaluate.crossed import FACET_PAIRS, accuracies
from qbe.evaluate.csfcube import ndcg_percent
from qbe.graded_pairs import read_graded_pairs
from qbe.index.building.build import build as build_index
from qbe.index.index import Index
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import resolve_reranker
from qbe.parallel import Workers
from qbe.query import Aspect, Query
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.rerank.reranker import RerankRequest
from qbe.search.background import BackgroundPenalty
from qbe.search.fusion import z_normalize
from qbe.search.pipeline import Pipeline
from qbe.search.stages import BM25, RERANK_WEIGHT, Dense, Fused
from qbe.types import Facet

Grades = Mapping[str, Mapping[str, Sequence[float]]]
Scores = Mapping[tuple[str, Facet], np.ndarray]
Scorer = Callable[[Aspect, Sequence[str]], Sequence[float]]
"""Gives the scores of a pool of paper ids for an aspect."""

SHARES = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.6, 0.8, 1.0)
"""Values of `background_penalty`."""

CROSSED = tuple(f"{first}-{second}" for first, second in FACET_PAIRS)
"""The columns of `crossed`."""

WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def read_grades(path: Path) -> Grades:
    """Grades by query and candidate, one a facet."""
    lists = read_graded_pairs(path)
    return {query: {pair.paper_id: pair.grades for pair in pairs} for query, pairs in lists.items()}


def build(data: Path, pairs: Path, folder: Path) -> None:
    """Index the papers of both splits of facet-judgments and of the pairs."""
    splits = [read_grades(data / "facet-judgments" / f"{split}.tsv") for split in ("train", "dev")]
    lists = [*splits, read_grades(pairs)]
    wanted = {name for some in lists for query, pool in some.items() for name in (query, *pool)}
    corpus = folder.with_suffix(".jsonl")
    with lzma.open(data / "arxiv-cs" / "arxiv-cs.jsonl.xz", "rt") as source, corpus.open("w") as target:
        target.writelines(line for line in source if json.loads(line)["paper_id"] in wanted)
    build_index(folder, str(corpus))


def by_query(scores: Scores, grades: Grades) -> list[dict[str, tuple[float, float]]]:
    """For each facet Spearman's correlation and NDCG%20 by query; queries of equal grades are left out."""
    facets: list[dict[str, tuple[float, float]]] = []
    for number, facet in enumerate(Facet):
        figures_by_query = {}
        for query, pool in grades.items():
            query_grades = [row[number] for row in pool.values()]
            if len(set(query_grades)) > 1:
                row = scores[query, facet]
                ranked = [query_grades[place] for place in np.argsort(-row, kind="stable")]
                ndcg = 100 * ndcg_percent(ranked, query_grades)
                figures_by_query[query] = spearmanr(row, query_grades).statistic, ndcg
        facets.append(figures_by_query)
    return facets


def figures(scores: Scores, grades: Grades) -> list[float]:
    """Mean over queries of Spearman's correlation by facet, and the mean of the three; NDCG%20 likewise."""
    means = np.array([np.mean([*facet.values()], axis=0) for facet in by_query(scores, grades)])
    correlations, gains = means.T.tolist()
    return [*correlations, float(np.mean(correlations)), *gains, float(np.mean(gains))]


def gains_by_query(scores: Scores, grades: Grades) -> np.ndarray:
    """NDCG%20 of each query (queries,), mean of the facets whose grades are not all alike."""
    facets = by_query(scores, grades)
    values = ([facet[query][1] for facet in facets if query in facet] for query in grades)
    return np.array([np.mean(each) for each in values if each])


def standard_error(differences: np.ndarray) -> float:
    """The standard error of the mean of paired differences (queries,)."""
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def one_standard_error(rows: Mapping[float, np.ndarray]) -> float:
    """The smallest weight whose mean lies within one standard error of the best one's, the error being that
    of the paired difference: the rule of Breiman et al. (1984), by which what learned less counts for more
    where the data do not tell the two apart.
    """
    best = rows[max(rows, key=lambda weight: float(rows[weight].mean()))]
    for weight in sorted(rows):
        lost = best - rows[weight]
        if lost.mean() <= standard_error(lost):
            return weight
    raise AssertionError("the best lies within any distance of itself")


def pool_scores(index: Index, grades: Grades, score: Scorer) -> Scores:
    """Scores of each query's candidates by facet."""
    return {
        (name, facet): np.array(score(Aspect(index.paper(name), facet), list(pool)))
        for name, pool in grades.items()
        for facet in Facet
    }


def held(index: Index, grades: Grades) -> Grades:
    """The queries and candidates that the index holds."""
    pools = {query: pool for query, pool in grades.items() if query in index}
    return {
        query: {name: row for name, row in pool.items() if name in index} for query, pool in pools.items()
    }


def ranked_by(pipeline: Pipeline) -> Scorer:
    """Scores as a search within the pool gives them."""

    def score(aspect: Aspect, pool: Sequence[str]) -> Sequence[float]:
        hits = pipeline.search(Query.of(aspect), len(pool), pool, matches=False)
        scores = {hit.paper_id: hit.score for hit in hits}
        return [scores[name] for name in pool]

    return score


def reranked(index: Index, reranker: FacetCrossEncoder) -> Scorer:
    def score(aspect: Aspect, pool: Sequence[str]) -> Sequence[float]:
        papers = [index.paper(name) for name in pool]
        (scores,) = reranker.batch_score([RerankRequest(EncodedAspect.of(aspect), papers)])
        return [entry.score for entry in scores]

    return score


def mixed(first: Scores, second: Scores, weight: float) -> Scores:
    return {
        key: (1 - weight) * z_normalize(first[key].astype(float))
        + weight * z_normalize(second[key].astype(float))
        for key in first
    }


def penalized(index: Index, scores: Scores, grades: Grades, share: float) -> Scores:
    """Scores less the background penalty, as in a search with that value of it."""
    results = {}
    with index.reading() as reader:
        penalty = BackgroundPenalty(reader, share)
        for (name, facet), values in scores.items():
            paper = index.paper(name)
            query = EncodedAspect.of(Aspect(paper, facet), index.vectors(paper))
            rows = np.array([reader.papers.row(candidate) for candidate in grades[name]])
            results[name, facet] = penalty.apply(query, rows, values.astype(float)).scores
    return results


def crossed(scores: Scores, grades: Grades) -> list[str]:
    """Shares of crossed pairs ranked right by the first facet, the second and both, by pair of facets."""
    by_facet = {
        query: {name: dict(zip(Facet, row, strict=True)) for name, row in pool.items()}
        for query, pool in grades.items()
    }
    by_paper = {
        (query, facet): dict(zip(grades[query], row.tolist(), strict=True))
        for (query, facet), row in scores.items()
    }
    by_pair = accuracies(by_facet, by_paper)
    return [
        "/".join(f"{share:.2f}" for share in by_pair[name][:3]) if name in by_pair else "" for name in CROSSED
    ]


def show(name: str, scores: Scores, grades: Grades) -> None:
    row = figures(scores, grades)
    cells = [*(f"{value:.3f}" for value in row[:4]), *(f"{value:.2f}" for value in row[4:])]
    cells += crossed(scores, grades)
    print(f"| {name:34} | " + " | ".join(cells) + " |", flush=True)


def curve(index: Index, first: Scores, second: Scores, grades: Grades) -> None:
    """Print what each value of `background_penalty` costs and gains."""
    for share in SHARES:
        stages = (penalized(index, scores, grades, share) for scores in (first, second))
        show(f"fused, reranked, background_penalty={share}", mixed(*stages, RERANK_WEIGHT), grades)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path)
    parser.add_argument("--reranker", default=DEFAULT_RERANKER, help="default: %(default)s")
    parser.add_argument("--pairs", type=Path, help="default: the dev split of facet-judgments")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    data = Path(os.environ["QBE_DATA"])
    pairs = options.pairs or data / "facet-judgments" / "dev.tsv"
    grades = read_grades(pairs)
    with tempfile.TemporaryDirectory() as folder:
        where = options.index or Path(folder) / "index"
        if options.index is None:
            build(data, pairs, where)
        with Index(where, threads=options.threads) as index:
            compare(index, grades, options)


def compare(index: Index, grades: Grades, options: argparse.Namespace) -> None:
    """Print the tables."""
    files = resolve_reranker(options.reranker, options.precision)

    facets = " | ".join([*map(str, Facet), "mean"])
    pairs = " | ".join(f"crossed {first}/{second}" for first, second in FACET_PAIRS)
    print(f"| scores | Spearman: {facets} | NDCG%20: {facets} | {pairs} |")
    with Workers(options.threads) as workers:
        second = pool_scores(index, grades, reranked(index, FacetCrossEncoder(files, workers)))
    show("reranker alone", second, grades)
    for stage in (BM25(), Dense(), Fused(background_penalty=0)):
        with Pipeline(index, stage) as pipeline:
            first = pool_scores(index, grades, ranked_by(pipeline))
        rows = {}
        for weight in WEIGHTS:
            both = mixed(first, second, weight)
            show(f"{stage.name}, reranker's weight {weight}", both, grades)
            rows[weight] = gains_by_query(both, grades)
        print(
            f"{stage.name}: smallest weight within one standard error of the best: {one_standard_error(rows)}"
        )
        if stage.name == "fused":
            curve(index, first, second, grades)


if __name__ == "__main__":
    main()
