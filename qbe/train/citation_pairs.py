"""Training of cross-encoders for citations: whether a paper cites a candidate of BM25.

Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models for Citation Recommendation* (BIR
2020), sections 3 to 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cite.scoring import Evidence, Ints
from qbe.errors import CorpusError, UsageError
from qbe.index.reader import IndexReader
from qbe.search.filters import FilterCache
from qbe.search.first_stages import BM25Stage
from qbe.search.rerankers import OF_FACET
from qbe.train.citation import CitationFigures, citation_figures, query_at, read_split
from qbe.train.cross_encoder import BCE, CrossEncoderTraining, DevEvaluator, Examples, spread
from qbe.train.pair_reader import PairReader, by_length
from qbe.train.work import Card
from qbe.util.work import Workers


class Candidates(NamedTuple):
    """A query, by its row in the index, its candidates, best first (n,), and what it cites (m,)."""

    query: int
    rows: Ints
    cited: Ints

    @property
    def labels(self) -> NDArray[np.bool_]:
        return np.isin(self.rows, self.cited)


def bm25_candidates(
    reader: IndexReader, workers: Workers, cited: Mapping[int, Ints], depth: int
) -> list[Candidates]:
    """For each query its best candidates by BM25, title and abstract as the query, none younger than it."""
    stage, evidence, filters = BM25Stage(reader, workers, "abstract"), Evidence(reader), FilterCache(reader)
    found = []
    for row in sorted(cited):
        query, selection = query_at(reader, evidence, filters, row)
        (hits,) = stage.batch_search([query.encoded], depth + 1, [None], selection)
        rows = [reader.papers.row(hit.paper_id) for hit in hits]
        best = [each for each in rows if each != row][:depth]
        found.append(Candidates(row, np.array(best, np.int64), cited[row]))
    return found


def chosen_candidates(candidates: Sequence[Candidates], classes: str, papers: int) -> list[Candidates]:
    """The candidates to learn from, as ``classes`` says (see CLASSES), out of an index of so many papers."""
    if classes == "natural":
        return list(candidates)
    rng, chosen = np.random.default_rng(0), []
    for each in candidates:
        labels, rows = each.labels, each.rows
        if classes == "balanced":
            rows = np.concatenate([rows[labels], rng.permutation(rows[~labels])[: labels.sum()]])
        else:
            rows = np.union1d(rows, each.cited)
        if classes == "random":
            unknown = np.setdiff1d(np.arange(papers), [each.query, *rows])
            rows = np.concatenate([rows, rng.permutation(unknown)[: len(each.rows)]])
        chosen.append(each._replace(rows=rows))
    return chosen


def citation_examples(candidates: Sequence[Candidates], model: PairReader, size: int) -> Examples:
    """Pairs to learn from; raises CorpusError where no candidate is cited, or where all are."""
    rows = [
        (each.query, row, [number, float(label)])
        for number, each in enumerate(candidates)
        for row, label in zip(each.rows.tolist(), each.labels.tolist(), strict=True)
    ]
    if len({label for *_, (_, label) in rows}) < 2:
        raise CorpusError(
            "expected candidates of BM25 that are cited and others that are not, found one kind alone; "
            "give a larger collection"
        )
    return Examples(rows, partial(by_length, [model.length(each[:2]) for each in rows], size))


def reranked_figures(dev: Sequence[Candidates], model: PairReader | None) -> CitationFigures:
    """The figures of what a model reranks, or (None) of BM25's order."""
    lists = []
    for each in dev:
        labels = each.labels
        if model is not None:
            scores = model.scores(each.query, each.rows.tolist())[:, 0]
            labels = labels[np.argsort(-scores, kind="stable")]
        lists.append((labels, len(each.cited)))
    return citation_figures(lists)


@dataclass
class CitationPairTraining(CrossEncoderTraining):
    """A cross-encoder for citations, which reads abstracts; of several seeds the mean is published.

    Sources are an index with postings, and qrels of who cites whom, to train on and of dev.
    """

    learns_from: ClassVar[str] = "citations"

    def settled(self) -> tuple[int, str, str]:
        if self.recipe.facet or self.recipe.loss not in (None, BCE):
            raise UsageError(f"citations have no `facet`, and the `loss` {BCE}; drop what is given")
        return 1, self.recipe.texts or OF_FACET, BCE

    def read(self) -> tuple[Examples, DevEvaluator]:
        recipe, reader = self.recipe, self._reader
        workers = self.opened.enter_context(Workers(self.run.threads))
        train, dev = (read_split(reader, files[0]) for files in (self.sources.train, self.sources.dev))
        best = bm25_candidates(reader, workers, train, recipe.candidates)
        queries = {row: dev[row] for row in spread(sorted(dev), recipe.dev_queries)}
        self._measured = bm25_candidates(reader, workers, queries, recipe.dev_depth)
        chosen = chosen_candidates(best, recipe.classes, len(reader.papers))
        examples = citation_examples(chosen, self._model, recipe.batch)
        return examples, DevEvaluator("f1", lambda model: reranked_figures(self._measured, model).f1)

    def figures(self, examples: Examples) -> dict[str, Any]:
        orders = {"BM25": None, "reranked": self._model}
        found = {name: reranked_figures(self._measured, model)._asdict() for name, model in orders.items()}
        return {"cited": int(sum(label for _, label in examples.pairs["label"])), "dev": found}

    def card(self, weights: str, measured: str, figures: Mapping[str, Sequence[float]]) -> Card:
        recipe, training = self.recipe, self._training
        return Card(
            name=self.name,
            purpose="Reranks candidates for the bibliography of a paper: the log-odds that it cites a "
            f"candidate, read together (Nogueira et al., BIR 2020), trained from {weights} on "
            f"{training['pairs']:,} pairs, BM25's {recipe.candidates} best of each query (classes "
            f"{recipe.classes}), of which {training['cited'] / training['pairs']:.1%} are cited.",
            input="title and abstract of query and candidate, of which it reads "
            f"{recipe.query_tokens} and {recipe.candidate_tokens} tokens",
            caption=f"Means over {recipe.dev_queries} queries of dev whose {recipe.dev_depth} best "
            f"candidates by BM25 are reranked. F1@20 {measured}",
            columns=("order", "F1@20", "MRR", "recall"),
            figures=figures,
            limits="Trained on papers of one collection; dev chose when training ended.",
            licence=f"that of {self._base} and of the training data",
        )
