"""Training of the citation model, from an index and its citations to the published folder."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from qbe.errors import UsageError
from qbe.export.staging import staged_folder
from qbe.grade.head import Head, mean_head
from qbe.index.index import Index
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.index.rows import Selection
from qbe.parallel import Workers
from qbe.search.filtering import FilterCache
from qbe.search.filters import PaperFilter
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.train.card import Card, table
from qbe.train.citation.data import CitationFigures, RankedList, citation_figures, query_at, read_split
from qbe.train.citation.projection import (
    Citations,
    ProjectionNetwork,
    ProjectionSchedule,
    ProjectionTask,
)
from qbe.train.heads import FeatureList, HeadSchedule, fit_head
from qbe.train.stored_vectors import StoredVectors
from qbe.train.trainer import Checkpoints, Schedule, fit

log = logging.getLogger(__name__)
Ints = NDArray[np.int64]
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


@dataclass(frozen=True, slots=True)
class Sources:
    """An index of the papers, and qrels of who cites whom, to train on and of dev."""

    index: Path
    train: Path
    dev: Path


def train_citation(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = DEFAULT_RECIPE
) -> Mapping[str, CitationFigures]:
    """Train the citation model, measure it on dev, and publish it with a card.

    Finished parts are kept in the work folder, from which the same call continues. The mean of the seeds'
    projections is published. Returns the figures on dev, by what is known beside texts. Raises CorpusError
    for citations of papers that the index lacks, UsageError for data without years to hold back,
    IndexFormatError for an index without vectors or postings, OutputError where nothing can be written.
    """
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        digest = reader.manifest.digest
        provenance = {
            "recipe": as_record(recipe),
            "index": digest,
            "data": file_digests(sources.train, sources.dev),
        }
        check_provenance(folders.work, provenance)
        torch.set_num_threads(run.threads)
        with Workers(run.threads) as workers:
            training = _Training(index, reader, workers, folders.work, recipe, sources)
            model, figures = training.run(run.seeds, provenance)
    with staged_folder(folders.output) as staged:
        write_model(staged, model)
        _card(model, figures).write(staged)
    return figures


def _card(model: CitationModel, figures: Mapping[str, CitationFigures]) -> Card:
    projections = model.training["projections"]
    return Card(
        name="citation",
        purpose="Recommends papers to cite: a projection of stored vectors, and small networks that rank "
        "candidates by texts, years and, where known, citations and a part of the bibliography.",
        input=f"an index with vectors of {model.encoder['name']} (weights "
        f"{model.encoder['weights_sha256'][:12]}); `cites` in its metadata",
        figures="Means over the queries of dev; where half of the bibliography is known (seeds) or left "
        f"out, the other half is to be found. F1@20 of the projection alone: {projections['mean']:.4f}.",
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
        self._index, self._reader, self._workers = index, reader, workers
        self._work, self._recipe, self._passing = work, recipe, FilterCache(reader)
        self._train, self._dev = read_split(reader, sources.train), read_split(reader, sources.dev)
        self._vectors = StoredVectors(
            index.sentence_vectors.astype(np.float32), index.whole_vectors.astype(np.float32), _starts(reader)
        )
        self._years = Evidence(reader).years

    def run(
        self, seeds: Sequence[int], provenance: Mapping[str, Any]
    ) -> tuple[CitationModel, dict[str, CitationFigures]]:
        """The model and its figures on dev."""
        nearest = self._nearest()
        early, late = self._split_by_year()
        projections, by_seed = [], {}
        for seed in seeds:
            projection = self._projection(f"seed-{seed}", self._train, nearest, seed)
            projections.append(projection)
            by_seed[f"seed {seed}"] = self._projected_f1(projection)
        projection = Projection(*(np.mean(parts, axis=0) for parts in zip(*projections, strict=True)))
        by_seed["mean"] = self._projected_f1(projection)
        held_back = self._projection("held-back", early, nearest, seeds[0])
        heads, figures = self._heads(held_back, projection, late, seeds)
        for key, each in figures.items():
            log.info("%s: dev F1@20 %.4f, MRR %.4f, recall %.4f", key, *each)
        dense = self._reader.manifest.dense
        assert dense is not None
        training = {
            **provenance,
            "seeds": list(seeds),
            "projections": by_seed,
            "dev": {key: each._asdict() for key, each in figures.items()},
        }
        return CitationModel(projection, heads, dense["encoder"], training), figures

    def _opened(self, projection: Projection) -> CitationScorer:
        return CitationScorer(self._reader, self._workers, projection, self._recipe.depth)

    def _split_by_year(self) -> tuple[dict[int, Ints], dict[int, Ints]]:
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
        network, queries = ProjectionNetwork(self._vectors), sorted(self._train)
        depth = self._recipe.projection.depth
        nearest = {}
        for query, rows in self._ranked(network, queries):
            nearest[query] = rows[~np.isin(rows, self._train[query])][:depth]
        return nearest

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

    def _projection(
        self, name: str, cited: Mapping[int, Ints], nearest: Mapping[int, Ints], seed: int
    ) -> Projection:
        """A projection fitted to what queries cite, with the best epoch on dev."""
        network, schedule = ProjectionNetwork(self._vectors), self._recipe.projection
        citations = Citations(cited, nearest, self._years)
        task = ProjectionTask(network, citations, schedule, self._projected_f1)
        steps = Schedule(schedule.epochs, patience=schedule.patience)
        fit(task, steps, seed, Checkpoints(self._work / f"{name}.pt"))
        return network.projection()

    def _projected_f1(self, projection: Projection) -> float:
        """F1@20 on dev of the projection's scores alone, over all papers that are not younger."""
        ranked = self._ranked(ProjectionNetwork.of(self._vectors, projection), sorted(self._dev))
        lists = (
            RankedList(np.isin(rows[: self._recipe.depth], self._dev[query]), len(self._dev[query]))
            for query, rows in ranked
        )
        return citation_figures(lists).f1

    def _heads(
        self,
        held_back: Projection,
        projection: Projection,
        late: Mapping[int, Ints],
        seeds: Sequence[int],
    ) -> tuple[dict[str, Head], dict[str, CitationFigures]]:
        """A head for everything that may be known, the mean of the seeds', fitted to the queries of the last
        years, and its figures on dev; those without seeds also where half of what is cited is left out.
        """
        heads, figures = {}, {}
        train = self._lists(held_back, late, self._recipe.draws)
        dev = self._lists(projection, self._dev)
        if not all(parts[known.key] for parts in (train, dev) for known in FEATURE_SETS):
            raise UsageError(
                "expected papers that cite two or more to train and to measure on, found none; give a larger "
                "collection"
            )
        for known in FEATURE_SETS:
            lists = dev[known.key]

            def measured(head: Head, lists: Sequence[FeatureList] = lists) -> CitationFigures:
                return citation_figures(_ranked_by(head, each) for each in lists)

            def figure(head: Head, measured: Callable[..., CitationFigures] = measured) -> float:
                f1, mrr, _ = measured(head)
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
            figures[known.key] = measured(heads[known.key])
            if not known.seeds:
                figures[known.key + HALF] = measured(heads[known.key], dev[known.key + HALF])
        return heads, figures

    def _lists(
        self, projection: Projection, cited: Mapping[int, Ints], draws: int = 1
    ) -> dict[str, list[FeatureList]]:
        """For everything that may be known a list of each query; with seeds, half of what it cites is known
        and the rest wanted, and with more ``draws`` as many more lists with other shares known.
        """
        judge, rng = self._opened(projection), np.random.default_rng(SEEDS_SEED)
        lists: dict[str, list[FeatureList]] = defaultdict(list)
        queries = [query_at(self._reader, judge.evidence, row) for row in sorted(cited)]
        for query, candidates in self._candidates(judge, queries):
            assert query.row is not None
            whole = cited[query.row]
            half = np.sort(rng.permutation(whole)[: len(whole) // 2])
            rest = np.setdiff1d(whole, half)
            without = query._replace(excluded=frozenset(half.tolist()))
            for known in FEATURE_SETS:
                kinds = [(query._replace(seeds=half), rest, known.key)]
                if not known.seeds:
                    kinds = [(query, whole, known.key), (without, rest, known.key + HALF)]
                for variant, wanted, name in kinds:
                    if variant is not query and not len(half):
                        continue
                    lists[name].append(self._list(judge, variant, candidates, wanted, known))
            for _ in range(draws - 1):
                count = round(len(whole) * rng.uniform(*self._recipe.shares))
                seeds = np.sort(rng.permutation(whole)[:count])
                wanted = np.setdiff1d(whole, seeds)
                for known in FEATURE_SETS:
                    if known.seeds and len(seeds) and len(wanted):
                        variant = query._replace(seeds=seeds)
                        lists[known.key].append(self._list(judge, variant, candidates, wanted, known))
        return lists

    def _list(
        self,
        judge: CitationScorer,
        query: CiteQuery,
        candidates: CitationCandidates,
        wanted: Ints,
        known: FeatureSet,
    ) -> FeatureList:
        judged = judge.score(query, candidates, self._among(query), links=known.links)
        features = columns(judged.features, known.names)
        return FeatureList(features, np.isin(judged.rows, wanted), len(wanted))

    def _candidates(
        self, judge: CitationScorer, queries: Sequence[CiteQuery]
    ) -> Iterator[tuple[CiteQuery, CitationCandidates]]:
        """Each query with the candidates of the first stage, none of them younger than it."""
        for first in range(0, len(queries), BLOCK):
            block = queries[first : first + BLOCK]
            yield from zip(block, judge.first_stage(block, list(map(self._among, block))), strict=True)
            log.info("candidates of %d of %d queries", min(first + BLOCK, len(queries)), len(queries))

    def _among(self, query: CiteQuery) -> Selection | None:
        """The papers that are not younger than a query."""
        if query.year is None:
            return None
        return self._passing.of(PaperFilter(before=query.year)).selection


def _ranked_by(head: Head, candidates: FeatureList) -> RankedList:
    order = np.argsort(-head.scores(candidates.features), kind="stable")
    return RankedList(candidates.cited[order], candidates.total)


def _starts(reader: IndexReader) -> Ints:
    starts: Ints = np.asarray(reader.layout.starts, np.int64)
    return starts
