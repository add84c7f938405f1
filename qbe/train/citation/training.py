"""Training of the citation model, from an index and its citations to the published folder."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qbe.cite.links import Evidence
from qbe.cite.model import CitationModel, write_model
from qbe.cite.projected import Projection
from qbe.cite.scoring import FEATURE_SETS, CitationCandidates, CitationScorer, CiteQuery, FeatureSet, columns
from qbe.errors import CorpusError, UsageError
from qbe.index.index import Index
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.index.rows import Selection
from qbe.models.export.staging import staged_folder
from qbe.models.grade.head import Head, mean_head
from qbe.search.filters import FilterCache, PaperFilter
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import Card, reader_name, table
from qbe.train.citation.data import (
    NO_ROWS,
    CitationFigures,
    RankedList,
    citation_figures,
    query_at,
    read_split,
)
from qbe.train.citation.projection import (
    Citations,
    ProjectionNetwork,
    ProjectionSchedule,
    ProjectionTask,
    projection_of,
)
from qbe.train.heads import FeatureList, HeadSchedule, fit_head
from qbe.train.late_interaction import StoredVectors
from qbe.train.pairs import encoder_of
from qbe.train.trainer import fit, fit_seeds
from qbe.train.weights import copied, with_weights
from qbe.util.parallel import Workers

log = logging.getLogger(__name__)
Ints = NDArray[np.int64]
Cited = Mapping[int, Ints]
"""What queries cite, by row."""

Lists = Mapping[str, list[FeatureList]]
"""Candidates of queries, by what is known."""

BLOCK = 64
"""Queries whose candidates are found at a time."""

HALF = ", half left out"
"""Follows the name of what is known where half of what a query cites is neither known nor wanted."""

SEEDS_SEED = 7
"""Of the halves of bibliographies that are seeds."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The schedules, and how many candidates the first stage brings.

    The heads learn from the last ``held_back`` years of the training queries by the features of a projection
    that was fitted without these years: features of queries that it was fitted to would promise too much.
    Those that know papers which the query cites learn from ``draws`` lists of each query, one with half of
    its bibliography known and the others with a share drawn from ``shares``, at a learning rate as many times
    smaller.
    """

    projection: ProjectionSchedule = field(default_factory=ProjectionSchedule)
    heads: HeadSchedule = field(default_factory=HeadSchedule)
    depth: int = 1000
    held_back: int = 6
    draws: int = 3
    shares: tuple[float, float] = (0.2, 0.7)


DEFAULT_RECIPE = Recipe()


def train(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE
) -> Mapping[str, CitationFigures]:
    """Train the citation model, measure it on dev, and publish it with a card.

    ``sources`` are an index of the papers, and qrels of who cites whom, to train on and of dev. The mean of
    the seeds' projections is published. Returns the figures on dev, by what is known beside texts. Raises
    CorpusError for citations of papers that the index lacks, or where it has no citations, UsageError for
    data without years to hold back, IndexFormatError for an index without vectors or postings, OutputError
    where nothing can be written.
    """
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest)
        with Workers(run.threads) as workers:
            training = _Training(index, reader, workers, folders.work, recipe, sources)
            model, figures = training.run(run.seeds, provenance)
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        _card(model, figures).write(staged)
    return figures


def _card(model: CitationModel, figures: Mapping[str, CitationFigures]) -> Card:
    alone = list(model.training["projections"].values())[-1]
    return Card(
        name=reader_name("citation", model.encoder["name"]),
        purpose="Recommends papers to cite: a projection of stored vectors, and small networks that rank "
        "candidates by texts, years and, where known, citations and a part of the bibliography.",
        input=f"an index with vectors of {model.encoder['name']} (weights "
        f"{model.encoder['weights_sha256'][:12]}); `cites` in its metadata",
        figures="Means over the queries of dev; where half of the bibliography is known (seeds) or left "
        f"out, the other half is to be found. F1@20 of the projection alone: {alone:.4f}.",
        table=table(["known", "F1@20", "MRR", "recall"], ([key, *each] for key, each in figures.items())),
        data=model.training["data"],
        command="citation --collection DIR --index DIR",
        limits="Trained on papers of one collection; dev chose the epochs.",
    )


class _Training:
    """The steps of one training, over one commit of an index."""

    def __init__(
        self,
        index: Index,
        reader: IndexReader,
        workers: Workers,
        work: Path,
        recipe: Recipe,
        sources: Sources,
    ) -> None:
        self._reader, self._workers, self._work, self._recipe = reader, workers, work, recipe
        self._filters = FilterCache(reader)
        self._train, self._dev = read_split(reader, sources.train[0]), read_split(reader, sources.dev[0])
        self._vectors = StoredVectors(
            index.sentence_vectors.astype(np.float32),
            index.whole_vectors.astype(np.float32),
            np.asarray(reader.layout.starts, np.int64),
        )
        evidence = Evidence(reader)
        self._years = evidence.years
        if not len(evidence.links):
            raise CorpusError(
                "expected an `index` whose papers say what they cite, found none that does; build it from "
                "papers.jsonl of the `collection`"
            )

    def run(
        self, seeds: Sequence[int], provenance: Mapping[str, Any]
    ) -> tuple[CitationModel, dict[str, CitationFigures]]:
        """The model and its figures on dev."""
        nearest = self._nearest()
        early, late = self._split_by_year()
        schedule = self._recipe.projection.schedule()
        fitted = fit_seeds(lambda _: self._task(self._train, nearest), schedule, seeds, self._work)
        network = ProjectionNetwork(self._vectors)
        by_seed = {
            name: with_weights(network, weights, lambda: self._f1(network))
            for name, weights in fitted.items()
        }
        projection = projection_of(list(fitted.values())[-1])
        task = self._task(early, nearest)
        fit(task, schedule, seeds[0], self._work / "held-back.pt")
        held_back = projection_of(copied(task.network))
        heads, figures = self._heads(
            self._lists(held_back, late, self._recipe.draws), self._lists(projection, self._dev), seeds
        )
        training = {
            **provenance,
            "seeds": list(seeds),
            "projections": by_seed,
            "dev": {key: each._asdict() for key, each in figures.items()},
        }
        return CitationModel(projection, heads, encoder_of(self._reader), training), figures

    def _split_by_year(self) -> tuple[Cited, Cited]:
        """The queries of the earlier years, and those of the last ones, which the heads learn from."""
        known = (float(self._years[row]) for row in self._train)
        years = sorted({year for year in known if not np.isnan(year)})
        if len(years) <= self._recipe.held_back:
            raise UsageError(
                f"expected citing papers of more than {self._recipe.held_back} years to train on, found "
                f"{len(years)}; give metadata with years"
            )
        last = years[-self._recipe.held_back]
        late = {row: cited for row, cited in self._train.items() if self._years[row] >= last}
        return {row: cited for row, cited in self._train.items() if row not in late}, late

    def _nearest(self) -> dict[int, Ints]:
        """For each training query the nearest papers before training that it does not cite."""
        ranked = self._ranked(ProjectionNetwork(self._vectors), sorted(self._train))
        depth = self._recipe.projection.depth
        return {query: rows[~np.isin(rows, self._train[query])][:depth] for query, rows in ranked}

    def _ranked(self, network: ProjectionNetwork, queries: Sequence[int]) -> Iterator[tuple[int, Ints]]:
        """Each query with all papers that are not younger, best first by the projection alone."""
        everything = torch.arange(len(self._years))
        for first in range(0, len(queries), BLOCK):
            block = list(queries[first : first + BLOCK])
            with torch.no_grad():
                scores = network(torch.tensor(block), everything).numpy()
            for query, row in zip(block, scores, strict=True):
                order = np.argsort(-row, kind="stable")
                yield query, order[~(self._years[order] > self._years[query]) & (order != query)]

    def _task(self, cited: Cited, nearest: Cited) -> ProjectionTask:
        """A projection to fit to what queries cite, with the best epoch on dev."""
        citations = Citations(cited, nearest, self._years)
        network = ProjectionNetwork(self._vectors)
        return ProjectionTask(network, citations, self._recipe.projection, self._f1)

    def _f1(self, network: ProjectionNetwork) -> float:
        """F1@20 on dev of the network's scores alone, over all papers that are not younger."""
        ranked = self._ranked(network, sorted(self._dev))
        lists = (
            RankedList(np.isin(rows[: self._recipe.depth], self._dev[query]), len(self._dev[query]))
            for query, rows in ranked
        )
        return citation_figures(lists).f1

    def _heads(
        self, train: Lists, dev: Lists, seeds: Sequence[int]
    ) -> tuple[dict[str, Head], dict[str, CitationFigures]]:
        """A head for everything that may be known, the mean of the seeds', and its figures on dev; those
        without seeds also where half of what is cited is left out.
        """
        heads, figures = {}, {}
        if not all(parts[known.key] for parts in (train, dev) for known in FEATURE_SETS):
            raise UsageError(
                "expected papers that cite two or more to train and to measure on, found none; give a larger "
                "collection"
            )
        for known in FEATURE_SETS:

            def figure(head: Head, lists: Sequence[FeatureList] = dev[known.key]) -> float:
                f1, mrr, _ = _measured(head, lists)
                return (f1 + mrr) / 2

            log.info("fitting the head for %s to %d lists", known.key, len(train[known.key]))
            schedule = self._recipe.heads
            if known.seeds:
                rate = schedule.learning_rate / self._recipe.draws
                schedule = dataclasses.replace(schedule, learning_rate=rate)
            by_seed = [
                fit_head(train[known.key], schedule, seed, figure, self._work / f"{known.key}-{seed}.pt")
                for seed in seeds
            ]
            heads[known.key] = mean_head(by_seed)
            for key in (known.key,) if known.seeds else (known.key, known.key + HALF):
                figures[key] = _measured(heads[known.key], dev[key])
        return heads, figures

    def _lists(self, projection: Projection, cited: Cited, draws: int = 1) -> Lists:
        """For everything that may be known a list of each query; with seeds, half of what it cites is known
        and the rest wanted, and with more ``draws`` as many more lists with other shares known.
        """
        scorer = CitationScorer(self._reader, self._workers, projection, self._recipe.depth)
        rng, lists = np.random.default_rng(SEEDS_SEED), defaultdict[str, list[FeatureList]](list)
        queries = [query_at(self._reader, scorer.evidence, row) for row in sorted(cited)]
        for query, candidates in self._candidates(scorer, queries):
            assert query.row is not None
            whole = cited[query.row]
            parts = [np.sort(rng.permutation(whole)[: len(whole) // 2])]
            for _ in range(draws - 1):
                count = round(len(whole) * rng.uniform(*self._recipe.shares))
                parts.append(np.sort(rng.permutation(whole)[:count]))
            for known in FEATURE_SETS:
                if known.seeds:
                    variants = [(known.key, query._replace(seeds=part), part) for part in parts]
                else:
                    half = query._replace(excluded=frozenset(parts[0].tolist()))
                    variants = [(known.key, query, NO_ROWS), (known.key + HALF, half, parts[0])]
                for name, variant, part in variants:
                    if variant is query or 0 < len(part) < len(whole):
                        wanted = np.setdiff1d(whole, part)
                        lists[name].append(self._list(scorer, variant, candidates, wanted, known))
        return lists

    def _list(
        self,
        scorer: CitationScorer,
        query: CiteQuery,
        candidates: CitationCandidates,
        wanted: Ints,
        known: FeatureSet,
    ) -> FeatureList:
        scored = scorer.score(query, candidates, self._allowed(query), links=known.links)
        features = columns(scored.features, known.names)
        return FeatureList(features, np.isin(scored.rows, wanted), len(wanted))

    def _candidates(
        self, scorer: CitationScorer, queries: Sequence[CiteQuery]
    ) -> Iterator[tuple[CiteQuery, CitationCandidates]]:
        """Each query with the candidates of the first stage, none of them younger than it."""
        for first in range(0, len(queries), BLOCK):
            block = queries[first : first + BLOCK]
            yield from zip(block, scorer.first_stage(block, list(map(self._allowed, block))), strict=True)
            log.info("candidates of %d of %d queries", min(first + BLOCK, len(queries)), len(queries))

    def _allowed(self, query: CiteQuery) -> Selection | None:
        """The papers that are not younger than a query."""
        if query.year is None:
            return None
        return self._filters.of(PaperFilter(before=query.year)).selection


def _measured(head: Head, lists: Sequence[FeatureList]) -> CitationFigures:
    """The figures of what a head ranks."""
    orders = (np.argsort(-head.scores(each.features), kind="stable") for each in lists)
    return citation_figures(
        RankedList(each.cited[order], each.total) for each, order in zip(lists, orders, strict=True)
    )
