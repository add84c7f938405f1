"""Recommends papers to cite, over one open index, by the citation model: matrices, heads, and a card."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qbe.cite.scoring import FEATURE_SETS, CitationScorer, CiteQuery, Projection
from qbe.errors import IndexFormatError, ModelError, PaperNotFoundError, UsageError, check_count
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.models.cards import Arrays, Head, Storage, head_arrays, head_of
from qbe.models.encoding import EncodedAspect
from qbe.query import Aspect, Query, TopicAspect
from qbe.search.filters import FilterResult, PaperFilter, year_of
from qbe.search.first_stages import best_hits
from qbe.search.present import add_matches
from qbe.search.rank import RankingRequest, RerankStage
from qbe.search.rerankers import open_rerank_stage
from qbe.search.session import check_index
from qbe.search.stages import CrossEncoder
from qbe.types import Hit, Paper
from qbe.util.work import Closing, Workers

_STORAGE = Storage("citation", "citation")
_FEATURES = {each.key: list(each.names) for each in FEATURE_SETS}


@dataclass(frozen=True, slots=True)
class CitationModel:
    """Hold a projection of the vectors of ``encoder``, and a head for each `FeatureSet` by its ``key``."""

    projection: Projection
    heads: Mapping[str, Head]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def reads(self, encoder: Mapping[str, Any]) -> bool:
        """Tell if it reads the vectors of an encoder, as a manifest identifies it."""
        return bool(encoder["weights_sha256"] == self.encoder["weights_sha256"])


def default_model(encoder: Mapping[str, Any]) -> Path:
    """Return the folder of the model shipped for the vectors of an encoder, else for the default one."""
    return _STORAGE.shipped_for(encoder) or _STORAGE.shipped


def write_model(folder: Path, model: CitationModel) -> None:
    """Write a model into an existing folder: matrices in half, heads in single precision."""
    arrays: dict[str, Any] = {
        "sentences": model.projection.sentences.astype(np.float16),
        "whole": model.projection.whole.astype(np.float16),
        "weights": model.projection.weights.astype(np.float32),
    }
    for key, head in model.heads.items():
        arrays |= head_arrays(key, head)
    _STORAGE.write(folder, arrays, _FEATURES, model)


def read_model(folder: Path) -> CitationModel:
    """Read a model; raises ModelError for one that is absent, damaged or of another format."""

    def model_of(arrays: Arrays, *card: Any) -> CitationModel:
        projection = Projection(*(arrays[name] for name in Projection._fields))
        heads = {each.key: head_of(each.key, arrays) for each in FEATURE_SETS}
        return CitationModel(projection, heads, *card)

    return _STORAGE.read(folder, _FEATURES, model_of)


RUN_TAG = "qbe-cite"
QUERIES = ("abstract", "title", "keyterms")  # words of the BM25 query


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteConfig:
    """Configure a recommendation.

    The citation model scores ``depth`` candidates of the first stage; ``query`` are the words of its BM25
    query: ``abstract`` (and title), ``title`` or ``keyterms``. ``links`` uses citations among the
    papers of the index, where metadata have ``cites``. ``model`` is the folder of another citation model.
    ``rerank`` scores the best papers again, such as ``CrossEncoder("my-reranker", depth=50)`` from `qbe train
    citation-pairs`. ``filter`` selects the papers that may be found.

    Raises TypeError for a parameter of another type, UsageError for a value out of range.

    >>> CiteConfig(depth=20, query="title").links
    True
    """

    depth: int = 1000
    query: str = QUERIES[0]
    links: bool = True
    model: str | None = None
    rerank: CrossEncoder | None = None
    filter: PaperFilter | None = None

    def __post_init__(self) -> None:
        check_count("depth", self.depth)
        if self.query not in QUERIES:
            raise UsageError(f"expected `query` of {', '.join(QUERIES)}, found {self.query!r}")


class CiteRequest(NamedTuple):
    """Name a paper being written, ids of the index that it ``cited`` already (they help to find the rest and
    are not recommended again), and ids ``excluded``.

    >>> from qbe import paper_from_text
    >>> CiteRequest(paper_from_text("On stone", "Stone is hard. We cut it.")).cited
    ()
    """

    paper: Paper
    cited: Sequence[str] = ()
    excluded: Sequence[str] = ()


class Recommender(Closing):
    """Recommend which papers of an index a paper should cite, as a `CiteConfig` says.

    Several threads may use it. Closing it ends its threads and leaves the index open.
    """

    def __init__(self, index: Index, config: CiteConfig, model: CitationModel) -> None:
        """Use `Recommender.open` instead."""
        self.index, self.config, self._model = index, config, model
        self._workers, self._opening = Workers(index.threads), threading.Lock()
        self._rerank: RerankStage | None = None
        self._opened: CitationScorer | None = None

    @classmethod
    def open(cls, index: Index, config: CiteConfig | None = None) -> "Recommender":
        """Open a recommender of papers of an index.

        Raises IndexFormatError for an index without vectors or postings, ModelError for a model that cannot
        be read or is that of another encoder, UsageError for a reranker that scores facets alone, what
        opening it raises, and JavaError where BM25 finds no Java.
        """
        config = CiteConfig() if config is None else config
        check_index(index)
        dense = index.manifest.dense
        if dense is None or index.manifest.lucene is None:
            lacking = "vectors" if dense is None else "postings"
            expected = "an index with vectors and postings"
            found = f"one without {lacking}; build it with both"
            raise IndexFormatError(f"{index.folder}: expected {expected}, found {found}")
        encoder = dense["encoder"]
        model = read_model(default_model(encoder) if config.model is None else Path(config.model))
        if not model.reads(encoder):
            raise ModelError(
                f"expected vectors of {model.encoder['name']}, which the citation model reads, found those "
                f"of {encoder['name']}; train one for them with qbe train citation and give it as `model`"
            )
        recommender = cls(index, config, model)
        try:
            # Before the first stage, so that a reranker that cannot be had is refused before Java starts.
            stage = recommender._rerank = open_rerank_stage(config.rerank, index, recommender._workers)
            if stage is not None and (stage.needs_labels or not stage.reranks(TopicAspect(""))):
                found = f"{stage.reranker.name}, which reads those of a facet"
                advice = "give one trained with qbe train citation-pairs"
                raise UsageError(f"expected a `rerank` that reads whole abstracts, found {found}; {advice}")
            recommender._over()
        except BaseException:
            recommender.close()
            raise
        return recommender

    def close(self) -> None:
        self._workers.close()

    def recommend(
        self,
        paper: Paper,
        k: int = 20,
        *,
        cited: Sequence[str] = (),
        exclude: Sequence[str] = (),
        filter: PaperFilter | None = None,
        matches: bool = True,
    ) -> list[Hit]:
        """Return the ``k`` papers that the paper should most likely cite, best first, ties by id; without
        itself, what it ``cited`` already and what to ``exclude`` (ids of the index).

        ``filter`` replaces that of the configuration. ``matches`` adds the pairs of closest sentences. Raises
        PaperNotFoundError for ids that the index lacks, and UsageError for a filter by a year that it lacks.
        """
        request = CiteRequest(paper, cited, exclude)
        return self.batch_recommend([request], k, filter=filter, matches=matches)[0]

    def batch_recommend(
        self,
        requests: Sequence[CiteRequest],
        k: int = 20,
        *,
        filter: PaperFilter | None = None,
        matches: bool = True,
    ) -> list[list[Hit]]:
        """Return for each request exactly what `recommend` does, in less time."""
        check_count("k", k)
        scorer = self._over()
        reader = scorer.reader
        kept = self.config.filter if filter is None else filter
        asked = [Query(request.paper) for request in requests]
        allowed = [scorer.filters.of(kept, query).selection for query in asked]
        queries = [self._query(reader, request) for request in requests]
        candidates = scorer.first_stage(queries, allowed)
        deepest = k if self._rerank is None else max(k, self._rerank.depth)

        def best(place: int) -> list[Hit]:
            scored = scorer.score(queries[place], candidates[place], allowed[place], links=self.config.links)
            features = np.stack([scored.features[name] for name in scored.feature_set.names], axis=1)
            scores = self._model.heads[scored.feature_set.key].scores(features)
            ids = [reader.papers.ids[row] for row in scored.rows.tolist()]
            return best_hits(ids, scores.astype(np.float32), deepest)

        hits = list(self._workers.map(best, range(len(queries))))
        aspects = [[query.encoded] for query in queries]
        if self._rerank is not None:
            ranked = [RankingRequest(*each) for each in zip(asked, aspects, strict=True)]
            hits = [each[:k] for each in self._rerank.rerank(reader, ranked, hits)]
        return add_matches(reader, self._workers, aspects, hits) if matches else hits

    def selected(self, paper: Paper, filter: PaperFilter | None = None) -> FilterResult:
        """Count the papers that pass the filter (None: configured) for a paper, and those without a year."""
        filters = self._over().filters
        return filters.of(self.config.filter if filter is None else filter, Query(paper))

    def _query(self, reader: IndexReader, request: CiteRequest) -> CiteQuery:
        paper = request.paper
        row = reader.papers.find(paper.paper_id)
        vectors = reader.stored_vectors(paper) or self.index.encoder.encode_paper(paper)
        encoded = EncodedAspect.of(Aspect(paper), vectors)
        seeds = np.unique(np.array(_rows(reader, request.cited), np.int64))
        excluded = frozenset(_rows(reader, request.excluded))
        return CiteQuery(encoded, year_of(paper.metadata), row, seeds, excluded)

    def _over(self) -> CitationScorer:
        reader = self.index.reader
        with self._opening:
            if self._opened is None or self._opened.reader is not reader:
                config, projection = self.config, self._model.projection
                self._opened = CitationScorer(reader, self._workers, projection, config.depth, config.query)
            return self._opened


def _rows(reader: IndexReader, paper_ids: Sequence[str]) -> list[int]:
    rows = []
    for paper_id in paper_ids:
        row = reader.papers.find(paper_id)
        if row is None:
            expected = "ids of papers of the index as `cited` and `exclude`"
            raise PaperNotFoundError(f"expected {expected}, found {paper_id!r}, which it lacks")
        rows.append(row)
    return rows
