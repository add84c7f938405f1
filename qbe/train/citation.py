"""Training of the citation model: a projection of stored vectors, and the heads that rank candidates."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from torch import Tensor, nn

from qbe.cite.recommender import CitationModel, write_model
from qbe.cite.scoring import FEATURE_SETS, CitationScorer, CiteQuery, Doubles, Evidence, Ints, Projection
from qbe.errors import CorpusError, UsageError
from qbe.index.reader import IndexReader
from qbe.index.vectors import Selection
from qbe.models.cards import Head, mean_head
from qbe.models.encoding import EncodedAspect
from qbe.query import Aspect
from qbe.runs import read_qrels
from qbe.search.filters import FilterCache, PaperFilter
from qbe.train.fit import Schedule, Task, Weights, copied, fit, fit_seeds, shuffled, with_weights
from qbe.train.losses import citation_loss
from qbe.train.network import Standardization, StoredVectors, as_array, best_within, mean_by_paper
from qbe.train.pairs import encoder_of
from qbe.train.work import Card, Training, reader_name
from qbe.util.work import Workers

log = logging.getLogger(__name__)
NO_ROWS: Ints = np.zeros(0, np.int64)
Cited = Mapping[int, Ints]  # what queries cite, by row


def read_split(reader: IndexReader, qrels: Path) -> dict[int, Ints]:
    """The rows of what each query of a split cites, ascending, by its row; out of qrels of paper ids."""
    cited: dict[int, Ints] = {}
    for query_id, judged in read_qrels(qrels).items():
        rows = []
        for paper_id in (query_id, *(each for each, grade in judged.items() if grade > 0)):
            row = reader.papers.find(paper_id)
            if row is None:
                raise CorpusError(
                    f"{qrels}: expected papers of the index, found {paper_id}, which it lacks; build it from "
                    "papers.jsonl of the same collection"
                )
            rows.append(row)
        cited[rows[0]] = np.array(sorted(rows[1:]), np.int64)
    return cited


def query_at(
    reader: IndexReader, evidence: Evidence, filters: FilterCache, row: int
) -> tuple[CiteQuery, Selection | None]:
    """The paper at a row as a query, with its stored vectors; and the papers not younger, None for all."""
    paper, known = reader.papers[row], evidence.years[row]
    encoded = EncodedAspect.of(Aspect(paper), reader.stored_vectors(paper) if reader.manifest.dense else None)
    year = None if np.isnan(known) else int(known)
    selection = None if year is None else filters.of(PaperFilter(before=year)).selection
    return CiteQuery(encoded, year, row, NO_ROWS, frozenset()), selection


CUT = 20


class CitationFigures(NamedTuple):
    """F1 of the first 20, mean reciprocal rank, and recall of the candidates, each the mean over queries."""

    f1: float
    mrr: float
    recall: float


def citation_figures(lists: Iterable[tuple[NDArray[np.bool_], int]]) -> CitationFigures:
    """The figures of rankings: which papers of each are cited (papers,), best first, of how many in all."""
    rows = []
    for cited, total in lists:
        hits = int(cited[:CUT].sum())
        first = int(cited.argmax()) + 1 if cited.any() else 0
        rows.append((2 * hits / (CUT + total), 1 / first if first else 0.0, cited.sum() / total))
    return CitationFigures(*np.mean(rows, axis=0).tolist())


# Of `qbe.cite.scoring.TERMS`: as large as the similarities need for a softmax over some hundred candidates.
START_WEIGHTS = (8.0, 14.0, 2.0)


@dataclass(frozen=True, slots=True)
class ProjectionSchedule:
    """How the projection is fitted; a step's candidates are all papers that its queries cite, and others."""

    epochs: int = 10
    patience: int = 2
    queries: int = 24  # a step
    nearest: int = 20  # other candidates of each query, the best of the first stage
    random: int = 10  # and of its best ``depth``
    depth: int = 1000
    learning_rate: float = 3e-4
    weight_rate: float = 2e-2
    anchor: float = 1e-3  # the weight of the squared distance of the matrices to the identity


class ProjectionNetwork(nn.Module):
    """The matrices and weights of a `qbe.cite.scoring.Projection`, which begin as the identity."""

    def __init__(self, vectors: StoredVectors) -> None:
        super().__init__()
        self.vectors = vectors
        self.matrices = nn.Parameter(torch.eye(vectors.whole.shape[1]).repeat(2, 1, 1))
        self.weights = nn.Parameter(torch.tensor(START_WEIGHTS))

    def forward(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Scores (queries, candidates) of papers, given by row."""

        def projected(papers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            rows, places = self.vectors.rows(papers)
            sentences = self.vectors.sentences[rows] @ self.matrices[0].T
            whole = self.vectors.whole[papers] @ self.matrices[1].T
            return F.normalize(sentences, dim=-1), places, F.normalize(whole, dim=-1)

        sentences, places, whole = projected(candidates)
        query_sentences, query_places, query_whole = projected(queries)
        cosines = query_sentences @ sentences.T
        best = best_within(cosines, places, len(candidates))
        nearest = best_within(cosines.T, query_places, len(queries))
        parts = (
            mean_by_paper(best, query_places, len(queries)),
            query_whole @ whole.T,
            mean_by_paper(nearest, places, len(candidates)).T,
        )
        return torch.einsum("tqc,t->qc", torch.stack(parts), self.weights)


def projection_of(weights: Weights) -> Projection:
    (sentences, whole), of_terms = (weights[name].double().numpy() for name in ("matrices", "weights"))
    return Projection(sentences, whole, of_terms)


def projection_task(
    network: ProjectionNetwork,
    cited: Cited,
    nearest: Cited,
    years: NDArray[np.float64],
    schedule: ProjectionSchedule,
    figure: Callable[[ProjectionNetwork], float | None] = lambda _: None,
) -> Task[tuple[Sequence[int], Ints]]:
    """A projection that learns to rank what is ``cited`` above the other ``nearest`` papers, as ``figure``
    measures it on dev; ``years`` are of all papers.

    Batches are the queries of each step and the candidates of all of them, by row.
    """
    every = sorted(query for query in cited if len(cited[query]))
    identity = torch.eye(len(network.matrices[0]))
    if not every:
        raise CorpusError("expected papers that cite others to train on, found none; give more citations")

    def batches(seed: int) -> Iterator[tuple[Sequence[int], Ints]]:
        rng = np.random.default_rng(seed)
        for chosen in shuffled(every, schedule.queries, schedule.epochs, rng):
            parts = [cited[query] for query in chosen]
            parts += [nearest[query][: schedule.nearest] for query in chosen]
            for rows in (nearest[query] for query in chosen):
                parts.append(rng.choice(rows, min(schedule.random, len(rows))))
            yield chosen, np.unique(np.concatenate(parts))

    def losses(batch: tuple[Sequence[int], Ints]) -> Iterator[Tensor]:
        queries, candidates = batch
        scores, losses = network(torch.tensor(queries), torch.tensor(candidates)), []
        for place, query in enumerate(queries):
            may = (candidates != query) & ~(years[candidates] > years[query])
            right = np.isin(candidates, cited[query])
            losses.append(citation_loss(scores[place], torch.tensor(right), torch.tensor(may | right)))
        yield torch.stack(losses).mean() + schedule.anchor * ((network.matrices - identity) ** 2).sum()

    return Task(
        network,
        -(-len(every) // schedule.queries),
        rate=lambda name, _: (schedule.weight_rate if name == "weights" else schedule.learning_rate, 0.0),
        batches=batches,
        losses=losses,
        score=lambda: figure(network),
    )


class FeatureList(NamedTuple):
    """The ``features`` (candidates, F) of a query's candidates, those ``cited``, how many it cites in all."""

    features: Doubles
    cited: NDArray[np.bool_]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSchedule:
    """How a ranking head is fitted: ``epochs`` at most over the lists, one a step."""

    epochs: int = 12
    patience: int = 3
    hidden: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2


class _RankingHead(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.randn(width, hidden) / width**0.5)
        self.bias, self.direct = nn.Parameter(torch.zeros(hidden)), nn.Parameter(torch.zeros(width))
        self.out = nn.Parameter(torch.zeros(hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.direct + torch.tanh(inputs @ self.hidden + self.bias) @ self.out


def fit_head(
    lists: Sequence[FeatureList],
    schedule: HeadSchedule,
    seed: int,
    figure: Callable[[Head], float],
    path: Path,
) -> Head:
    """Fit a head that ranks, by ListNet (Cao et al., 2007, section 4.1): the cross-entropy of the softmax of
    scores against equal shares for what is cited. The best epoch by ``figure``, of a head on dev, is kept.
    """
    torch.manual_seed(seed)  # for the weights at the start
    together = np.concatenate([each.features for each in lists])
    standard, network = Standardization.of(together), _RankingHead(together.shape[1], schedule.hidden)
    inputs = [standard.inputs(each.features) for each in lists]
    cited = [torch.tensor(each.cited) for each in lists]
    usable = [place for place, each in enumerate(lists) if each.cited.any()]

    def losses(batch: list[int]) -> Iterator[Tensor]:
        for place in batch:
            yield -torch.log_softmax(network(inputs[place]), 0)[cited[place]].mean()

    def head() -> Head:
        return Head(*standard, *map(as_array, (network.hidden, network.bias, network.direct, network.out)))

    task = Task(
        network,
        len(usable),
        rate=lambda *_: (schedule.learning_rate, schedule.weight_decay),
        batches=lambda seed: shuffled(usable, 1, schedule.epochs, np.random.default_rng(seed)),
        losses=losses,
        score=lambda: figure(head()),
    )
    fit(task, Schedule(schedule.epochs, patience=schedule.patience), seed, path)
    return head()


Lists = Mapping[str, list[FeatureList]]  # candidates of queries, by what is known
BLOCK = 64  # queries whose candidates are found at a time
HALF = ", half left out"  # after what is known, where half of what a query cites is neither known nor wanted
SEEDS_SEED = 7  # of the halves of bibliographies that are seeds


@dataclass(frozen=True, slots=True)
class Recipe:
    """The schedules, and how many candidates the first stage brings.

    The heads learn from the last years of the training queries by a projection that was fitted without these
    years: features of queries that it was fitted to would promise too much. Those that know papers which the
    query cites learn at a rate smaller by the number of draws.
    """

    projection: ProjectionSchedule = ProjectionSchedule()
    heads: HeadSchedule = HeadSchedule()
    depth: int = 1000
    held_back: int = 6  # years that the heads learn from
    draws: int = 3  # lists of each query, one with half of its bibliography known, the others with a share
    shares: tuple[float, float] = (0.2, 0.7)


@dataclass
class CitationTraining(Training):
    """The citation model: the mean of the seeds' projections, and of their heads.

    Sources are an index of the papers, and qrels of who cites whom, to train on and of dev.
    """

    recipe: Recipe = Recipe()

    def open(self) -> dict[str, Any]:
        _, self._reader = self.open_index()
        self._encoder = encoder_of(self._reader)
        self._workers = self.opened.enter_context(Workers(self.run.threads))
        starts = np.asarray(self._reader.layout.starts, np.int64)
        self._vectors = StoredVectors(self._reader.sentence_vectors, self._reader.whole_vectors, starts)
        return {"index": self._reader.manifest.digest}

    def fit(self) -> None:
        seeds, recipe = self.run.seeds, self.recipe.projection
        schedule = Schedule(recipe.epochs, patience=recipe.patience)
        self._train = read_split(self._reader, self.sources.train[0])
        self._dev = read_split(self._reader, self.sources.dev[0])
        evidence = Evidence(self._reader)
        self._years = evidence.years
        if not evidence.count:
            raise CorpusError(
                "expected an `index` whose papers say what they cite, found none that does; build it from "
                "papers.jsonl of the `collection`"
            )
        depth, nearest = recipe.depth, {}  # before training, of what a query does not cite
        for query, rows in self._ranked(ProjectionNetwork(self._vectors), sorted(self._train)):
            nearest[query] = rows[~np.isin(rows, self._train[query])][:depth]
        early, late = self._split_by_year()
        task, without_late = (
            projection_task(ProjectionNetwork(self._vectors), cited, nearest, self._years, recipe, self._f1)
            for cited in (self._train, early)
        )
        fitted = fit_seeds(task, schedule, seeds, self.work)
        by_seed = {name: with_weights(task.network, each, task.score) for name, each in fitted.items()}
        self._projection = projection_of(list(fitted.values())[-1])
        fit(without_late, schedule, seeds[0], self.work / "held-back.pt")
        held_back = projection_of(copied(without_late.network))
        lists = self._lists(held_back, late, self.recipe.draws), self._lists(self._projection, self._dev)
        self._heads, self._figures = self._fitted_heads(*lists)
        dev = {key: each._asdict() for key, each in self._figures.items()}
        self._training = {"seeds": list(seeds), "projections": by_seed, "dev": dev}

    def publish(self, folder: Path) -> Card:
        training, encoder = {**self.made_from, **self._training}, self._encoder
        write_model(folder, CitationModel(self._projection, self._heads, encoder, training))
        alone = list(training["projections"].values())[-1]
        return Card(
            name=reader_name("citation", encoder["name"]),
            purpose="Recommends papers to cite: a projection of stored vectors, and small networks that rank "
            "candidates by texts, years and, where known, citations and a part of the bibliography.",
            input=f"an index with vectors of {encoder['name']} (weights {encoder['weights_sha256'][:12]}); "
            "`cites` in its metadata",
            caption="Means over the queries of dev; where half of the bibliography is known (seeds) or left "
            f"out, the other half is to be found. F1@20 of the projection alone: {alone:.4f}.",
            columns=("known", "F1@20", "MRR", "recall"),
            figures=self._figures,
            limits="Trained on papers of one collection; dev chose the epochs.",
        )

    def _split_by_year(self) -> tuple[Cited, Cited]:
        """The queries of the earlier years, and those of the last ones, which the heads learn from."""
        known = (float(self._years[row]) for row in self._train)
        years = sorted({year for year in known if not np.isnan(year)})
        if len(years) <= self.recipe.held_back:
            raise UsageError(
                f"expected citing papers of more than {self.recipe.held_back} years to train on, found "
                f"{len(years)}; give metadata with years"
            )
        last = years[-self.recipe.held_back]
        late = {row: cited for row, cited in self._train.items() if self._years[row] >= last}
        return {row: cited for row, cited in self._train.items() if row not in late}, late

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

    def _f1(self, network: ProjectionNetwork) -> float:
        """F1@20 on dev of the network's scores alone, over all papers that are not younger."""
        depth, dev = self.recipe.depth, self._dev
        ranked = self._ranked(network, sorted(dev))
        lists = ((np.isin(rows[:depth], dev[query]), len(dev[query])) for query, rows in ranked)
        return citation_figures(lists).f1

    def _fitted_heads(self, train: Lists, dev: Lists) -> tuple[dict[str, Head], dict[str, CitationFigures]]:
        """Fit for all that may be known a head, the mean of the seeds', and measure it on dev."""
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
            schedule = self.recipe.heads
            if known.seeds:
                rate = schedule.learning_rate / self.recipe.draws
                schedule = dataclasses.replace(schedule, learning_rate=rate)
            by_seed = [
                fit_head(train[known.key], schedule, seed, figure, self.work / f"{known.key}-{seed}.pt")
                for seed in self.run.seeds
            ]
            heads[known.key] = mean_head(by_seed)
            for key in (known.key,) if known.seeds else (known.key, known.key + HALF):
                figures[key] = _measured(heads[known.key], dev[key])
        return heads, figures

    def _lists(self, projection: Projection, cited: Cited, draws: int = 1) -> Lists:
        """List candidates of each query by what is known, seeds in so many draws (see `Recipe`)."""
        scorer = CitationScorer(self._reader, self._workers, projection, self.recipe.depth)
        rng, lists = np.random.default_rng(SEEDS_SEED), defaultdict[str, list[FeatureList]](list)
        rows = sorted(cited)
        for first in range(0, len(rows), BLOCK):
            some = rows[first : first + BLOCK]
            asked = (query_at(self._reader, scorer.evidence, scorer.filters, row) for row in some)
            block, allowed = zip(*asked, strict=True)
            found = scorer.first_stage(block, allowed)
            for row, query, candidates, selection in zip(some, block, found, allowed, strict=True):
                whole = cited[row]
                parts = [np.sort(rng.permutation(whole)[: len(whole) // 2])]
                for _ in range(draws - 1):
                    count = round(len(whole) * rng.uniform(*self.recipe.shares))
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
                            scored = scorer.score(variant, candidates, selection, links=known.links)
                            features = np.stack([scored.features[name] for name in known.names], axis=1)
                            listed = FeatureList(features, np.isin(scored.rows, wanted), len(wanted))
                            lists[name].append(listed)
            log.info("candidates of %d of %d queries", min(first + BLOCK, len(rows)), len(rows))
        return lists


def _measured(head: Head, lists: Sequence[FeatureList]) -> CitationFigures:
    return citation_figures(
        (each.cited[np.argsort(-head.scores(each.features), kind="stable")], each.total) for each in lists
    )
