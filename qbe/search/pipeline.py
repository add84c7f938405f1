"""Searching an index from Python: `Index.search` for one query, a `Pipeline` for many, also in PyTerrier."""

from __future__ import annotations

import html
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.corpus.bibliography import reference_of
from qbe.errors import UsageError, check_package, check_type
from qbe.evaluate.run import COLUMNS, Run
from qbe.index import index as base
from qbe.query import PLAIN, Aspect, Query, Topic, Variety, facet_named, parse_wish
from qbe.runs import check_pools, read_pools, read_topics
from qbe.search.filters import PaperFilter
from qbe.search.first_stages import Aspects
from qbe.search.present import ExplainedSentence, explain_query, grades_in_words, heading, shown
from qbe.search.queries import paper_named, queries_of, query_by
from qbe.search.rank import Progress
from qbe.search.request import BLOCK, SearchRequest
from qbe.search.rerankers import paper_text, query_text
from qbe.search.session import SearchSession
from qbe.search.stages import Stages, default_stages
from qbe.types import Facet, Hit, Paper, Pools
from qbe.util.files import StrPath
from qbe.util.text import some
from qbe.util.work import Closing, thread_count

if TYPE_CHECKING:
    import pandas as pd

    from qbe.corpus.records import Reading
    from qbe.index.source import BuildSettings, Corpus
    from qbe.index.update import Written

MOST_OPEN = 8  # pipelines of one index


class Hits(list[Hit]):
    """Hits of a ``query``, best first; in a notebook a table with the sentences that matched."""

    def __init__(self, query: Query, hits: Iterable[Hit], lookup: Callable[[str], Paper]) -> None:
        super().__init__(hits)
        self.query, self._lookup = query, lookup

    def __repr__(self) -> str:
        best = some([f"{hit.paper_id} {hit.score:.2f}" for hit in self])
        return f"<{len(self)} hits of {self.query.query_id}{': ' * bool(best)}{best}>"

    def _repr_html_(self) -> str:
        rows = []
        for rank, hit in enumerate(self, start=1):
            paper = self._lookup(hit.paper_id)
            title, link = html.escape(paper.title or hit.paper_id), reference_of(paper).link
            title = f'<a href="{html.escape(link)}">{title}</a>' if link else title
            best = shown(self.query, paper, hit)
            grades = "" if hit.grades is None else grades_in_words(hit)
            texts = [f"{hit.score:.2f}", paper.year or "", grades, best[1] if best else ""]
            score, *others = (f"<td>{html.escape(text)}</td>" for text in texts)
            rows.append(f"<tr><td>{rank}</td>{score}<td>{title}</td>{''.join(others)}</tr>")
        head = "".join(f"<th>{name}</th>" for name in ("", "score", "title", "year", "grades", "sentence"))
        caption = f"<caption>{html.escape(heading(self.query, self))}</caption>"
        return f"<table>{caption}<tr>{head}</tr>{''.join(rows)}</table>"


class Explanation(NamedTuple):
    """A query's result with its reasons: the sentences of each aspect, hits with matches."""

    query: Query
    sentences: Sequence[Sequence[ExplainedSentence]]
    hits: Sequence[Hit]


class Pipeline(Closing):
    """Searches an index: ``Pipeline(index, stages)``, or ``Pipeline(index, first_stage, reranker)``.

    ``stages`` are as in ``qbe.Fused() >> qbe.Projections()`` (default: `qbe.search.stages.default_stages`). A
    ``reranker`` may also be an object with ``batch_score``, or a function ``(aspect, papers) -> scores``.
    ``labels`` of the query's sentences are ``given`` (predicted where a paper brings none), or ``predicted``.
    Models and threads stay open until it is closed, which leaves the index open. Several threads may search.

    >>> from qbe import Fused, Query
    >>> with Pipeline(index, Fused()) as pipeline:
    ...     [hit.paper_id for hit in pipeline.search(Query(index.paper("2505.20979"), "problem"), k=1)]
    ['2107.09889']
    """

    def __init__(
        self, index: base.Index, stages: Any = None, reranker: Any = None, *, labels: str = "given"
    ) -> None:
        if isinstance(stages, Stages) and reranker is not None:
            raise UsageError("expected a first stage with a `reranker`, found stages that have one; give one")
        if reranker is not None:
            stages = Stages(default_stages(index).first_stage if stages is None else stages, reranker)
        self.session = SearchSession(index, stages)
        self.index, self.stages, self._labels = index, self.session.stages, labels

    def __repr__(self) -> str:
        return f"<Pipeline {self.stages.run_tag} over {self.index!r}>"

    def close(self) -> None:
        self.session.close()

    def search(
        self,
        query: Query | Paper | str,
        k: int = 10,
        pool: Sequence[str] | None = None,
        *,
        facet: Facet | str | None = None,
        like: Sequence[str] | str = (),
        unlike: Sequence[str] | str = (),
        filter: PaperFilter | None = None,
        matches: bool = True,
        explain: bool = False,
        grades: bool = False,
        variety: Variety = PLAIN,
    ) -> Hits:
        """Search a ``pool`` of ids, or the index, for the best ``k`` hits, never the query's own papers.

        ``query`` may be a paper, any name of one of the index (`Index.find`), or a text: an abstract or a
        question. Then ``facet`` says what counts, or ``like`` and ``unlike``, as on the command line.
        """
        if isinstance(query, Query):
            if facet or like or unlike:
                raise UsageError("expected a paper or a text with `facet`, `like` or `unlike`, found a query")
        else:
            check_type(query, Paper | str, "a qbe.Query, a qbe.Paper or a str as `query`", "give one of them")
            paper = paper_named(self.index, query) if isinstance(query, str) else query
            what: Any = facet
            if like or unlike:
                if facet is not None:
                    raise UsageError("expected `facet`, or `like` with `unlike`, found both; give one")
                wish = ([each] if isinstance(each, str) else each for each in (like, unlike))
                what, wished = parse_wish(*wish)
                variety = wished if variety == PLAIN else variety
            query = query_by([paper], [], facet_named(what) if isinstance(what, str) else what)
        request = SearchRequest(query, k, pool, filter, self._labels, matches, explain, grades, variety)
        ranking = self.session.batch([request])[0]
        return Hits(ranking.query, ranking.hits, self.index.paper)

    def batch_search(
        self,
        queries: Sequence[Query],
        k: int = 10,
        pools: Pools | None = None,
        *,
        progress: Progress | None = None,
        **how: Any,
    ) -> list[list[Hit]]:
        """Search for several queries, each in its pool; ``how`` are other parameters of `SearchRequest`."""
        if pools is not None and len(pools) != len(queries):
            raise UsageError(f"expected a pool for each of {len(queries)} queries, found {len(pools)} pools")
        requests = [
            SearchRequest(query, k, pool, **{"labels": self._labels, **how})
            for query, pool in zip(queries, pools or [None] * len(queries), strict=True)
        ]
        return [ranking.hits for ranking in self.session.batch(requests, progress)]

    def explain(
        self, query: Query, k: int = 10, pool: Sequence[str] | None = None, **how: Any
    ) -> Explanation:
        """Search, with the reasons of each hit; ``how`` are other parameters of `SearchRequest`."""
        request = SearchRequest(query, k, pool, explain=True, **{"labels": self._labels, **how})
        ranking = self.session.search(request)
        sentences = [explain_query(aspect) for aspect in ranking.query.aspects]
        return Explanation(ranking.query, sentences, ranking.hits)

    def grade(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Add grades to hits of a query (see `SearchSession.grade`)."""
        return self.session.grade(query, hits)

    def run(
        self,
        topics: StrPath | Sequence[Topic],
        k: int = 1000,
        pools: StrPath | Mapping[str, Sequence[str]] | None = None,
    ) -> Run:
        """Search for topics, in their ``pools``, ids by query id; each may be a file."""
        pools = read_pools(pools) if isinstance(pools, str | os.PathLike) else pools
        listed = read_topics(topics) if isinstance(topics, str | os.PathLike) else list(topics)
        for topic in listed:
            check_type(topic, Topic, "a path or qbe.Topic objects as `topics`", "give one of these")
        counts = Counter(topic.query_id for topic in listed)
        if len(counts) < len(listed):
            repeated = counts.most_common(1)[0][0]
            raise UsageError(f"expected each query_id once, found {repeated} twice; give topics other ids")
        if pools is not None:
            check_pools(pools, counts, self.index)
        rankings: dict[str, Sequence[Hit]] = {}
        for first in range(0, len(listed), BLOCK):
            block = listed[first : first + BLOCK]
            of_block = None if pools is None else [pools[topic.query_id] for topic in block]
            hits = self.batch_search(queries_of(self.index, block), k, of_block, matches=False)
            rankings |= {topic.query_id: tuple(found) for topic, found in zip(block, hits, strict=True)}
        return Run(self.stages.run_tag, rankings)

    def as_transformer(self, k: int = 1000, facet: Facet | str | None = None) -> Any:
        """Make a ``pyterrier.Transformer`` that searches with the pipeline.

        It takes a data frame with the columns ``qid`` and ``query``: the id of a paper of the index, or an
        abstract. A column ``facet`` takes the place of ``facet``; with ``docno``, only these are ranked.
        """
        check_package("pyterrier")
        import pyterrier as pt

        pipeline = self

        class QbeTransformer(pt.Transformer):
            def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
                pt.validate.columns(inp, includes=list(QUERY_COLUMNS))
                return _searched(pipeline, inp, k, facet)

        made: Any = QbeTransformer
        return made()


class Index(base.Index):
    """An index folder opened for searching and updating, also as a context manager; threads may share it.

    It reads the generation that was the newest when it was opened, refreshed, or updated by itself.

    >>> with Index("indexes/mini") as opened:
    ...     [hit.paper_id for hit in opened.search("2505.20979", facet="problem", k=1)]
    ['2509.08282']
    """

    def __init__(
        self,
        folder: StrPath | Sequence[StrPath],
        *,
        encoder: Any = None,
        tagger: str | None = None,
        threads: int | None = None,
    ) -> None:
        """Open an index, or several as one (see `qbe.index.index.Index`); ``encoder`` may be an object with
        ``encode`` or a function, by which the index was built.
        """
        self._searching = threading.Lock()
        self._pipelines: list[tuple[object, Pipeline]] = []
        if encoder is not None and not isinstance(encoder, str):
            from qbe.index.source import GivenEncoder

            encoder = encoder if isinstance(encoder, GivenEncoder) else GivenEncoder(encoder)
        super().__init__(folder, encoder=encoder, tagger=tagger, threads=threads)

    def __repr__(self) -> str:
        return f"<Index {self.folder}: {len(self):,} papers, generation {self.generation}>"

    def search(
        self, query: Query | Paper | str, k: int = 10, *, stages: Any = None, reranker: Any = None, **how: Any
    ) -> Hits:
        """Search with the default stages or others, which stay open; ``how`` is as of `Pipeline.search`."""
        with self._searching:
            chosen = (stages, reranker)
            pipeline = next((opened for known, opened in self._pipelines if known == chosen), None)
            if pipeline is None:
                pipeline = Pipeline(self, stages, reranker)
                self._pipelines.append((chosen, pipeline))
            if len(self._pipelines) > MOST_OPEN:
                self._pipelines.pop(0)[1].close()
        return pipeline.search(query, k, **{"grades": pipeline.session.can_grade, **how})

    def update(self, corpus: Corpus, *, reading: Reading | None = None) -> Written:
        """Add papers, in the place of those of the same ids; see `append`."""
        return self.append(corpus, reading=reading, update=True)

    def close(self) -> None:
        for _, pipeline in self._pipelines:
            pipeline.close()
        super().close()


open_index = Index


def build_index(
    folder: StrPath,
    corpus: Corpus,
    settings: BuildSettings | None = None,
    *,
    encoder: Any = None,
    reading: Reading | None = None,
    overwrite: bool = False,
    resume: bool = False,
    threads: int | None = None,
    progress: Any = None,
) -> Index:
    """Build an index of a corpus in a folder, and open it; see `qbe.index.build.build`.

    By default it has Lucene postings and vectors, made by the default encoder in int8. ``encoder`` takes the
    place of that of the settings: a name, an object with ``encode`` or a function, both of a list of texts,
    or the vectors of each paper (see `qbe.index.source.GivenEncoder`).

    >>> from qbe.types import Paper, Sentence
    >>> paper = Paper("1", "A title", (Sentence("We study search."), Sentence("It works.")))
    >>> with build_index("indexes/mine", [paper]) as mine:
    ...     mine.paper("1").title
    'A title'
    """
    from qbe.index import source
    from qbe.index.build import build

    if encoder is not None:
        settings = replace(settings or source.BuildSettings(), encoder=encoder)
    execution = source.Execution(thread_count(threads), progress or source.no_progress)
    how: Any = {"reading": reading, "overwrite": overwrite, "resume": resume, "execution": execution}
    build(Path(folder), corpus, settings, **how)
    given = getattr(settings, "encoder", "")
    return Index(folder, encoder=None if isinstance(given, str) else given, threads=threads)


log = logging.getLogger("qbe.search")

QUERY_COLUMNS = ("qid", "query")


def _searched(pipeline: Pipeline, frame: pd.DataFrame, k: int, facet: Facet | str | None) -> pd.DataFrame:
    asked = [name for name in ("qid", "query", "facet") if name in frame.columns]
    if frame[asked[:2]].isna().any(axis=None):
        raise UsageError("expected a qid and a query in each row, found none in some; leave these out")
    rows = frame.drop_duplicates("qid")
    if len(frame.drop_duplicates(asked)) > len(rows):
        raise UsageError("expected one query and facet for each qid, found several for some; give other qids")
    facets = list(rows["facet"]) if "facet" in frame.columns else [facet] * len(rows)
    queries = []
    for text, value in zip(map(str, rows["query"]), facets, strict=True):
        try:
            of_row = None if value is None or value != value or value == "" else Facet(value)
        except ValueError:
            raise UsageError(
                f"expected background, method or result in the column facet, found {value!r}"
            ) from None
        queries.append(Query(paper_named(pipeline.index, text), of_row))
    pools: Pools | None = None
    if "docno" in frame.columns:
        by_query = {query_id: list(map(str, docnos)) for query_id, docnos in frame.groupby("qid")["docno"]}
        pools = [by_query[query_id] for query_id in rows["qid"]]
    hits = pipeline.batch_search(queries, k, pools, matches=False) if queries else []
    results = Run("qbe", dict(zip(rows["qid"], hits, strict=True))).to_dataframe()
    of_queries = [name for name in rows.columns if name not in COLUMNS[1:]]
    merged: pd.DataFrame = results.astype({"qid": rows["qid"].dtype}).merge(rows[of_queries], on="qid")
    return merged[[*of_queries, *COLUMNS[1:]]]


def from_transformer(transformer: Any) -> TransformerStage:
    """Make a first stage or a reranker of a `qbe.Pipeline` of a transformer of PyTerrier."""
    if isinstance(transformer, type) or not callable(getattr(transformer, "transform", None)):
        raise TypeError(f"expected a transformer with a method transform, found {transformer!r:.60}")
    return TransformerStage(transformer)


@dataclass(frozen=True)
class TransformerStage:
    """A transformer as a stage; papers that it leaves out come last."""

    transformer: Any
    needs_vectors = False

    def __call__(self, aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
        texts = {paper.paper_id: paper_text(paper) for paper in papers}
        scores = self._completed(self._scores([aspect], texts).get("0", {}), texts)
        return [scores[paper.paper_id] for paper in papers]

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: object = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        if allowed is not None:
            raise UsageError("a `filter` needs a first stage of qbe's own, found a transformer; leave it out")
        by_query = self._scores([query.aspect for query in queries])
        ranked = []
        for number, pool in enumerate(pools):
            scores = by_query.get(str(number), {})
            if pool is not None:
                scores = self._completed(scores, pool)
            hits = [
                Hit(name, score, (), {"transformer": score} if explain else None)
                for name, score in scores.items()
            ]
            ranked.append(sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))[:k])
        return ranked

    def _scores(
        self, aspects: Sequence[Aspect], papers: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, float]]:
        """Scores by number of the aspect and id, of ``papers`` (texts by id) or of those that it finds."""
        import pandas as pd

        asked = [(str(i), query_text(each), str(each.facet or "")) for i, each in enumerate(aspects)]
        rows = asked if papers is None else [(*each, *paper) for each in asked for paper in papers.items()]
        names = [*QUERY_COLUMNS, "facet", *(() if papers is None else ("docno", "text"))]
        run = Run.from_dataframe(self.transformer.transform(pd.DataFrame(rows, columns=names)))
        return {number: {hit.paper_id: hit.score for hit in hits} for number, hits in run.items()}

    def _completed(
        self, scores: Mapping[str, float], pool: Sequence[str] | Mapping[str, str]
    ) -> dict[str, float]:
        """The scores of a pool; papers without one come last, and a warning counts them."""
        if missing := [paper_id for paper_id in pool if paper_id not in scores]:
            log.warning(
                "a transformer gives no score to %d of the %d papers of a pool, such as %s: they come last",
                *(len(missing), len(pool), missing[0]),
            )
        lowest = min(scores.values(), default=0.0) - 1
        return {paper_id: scores.get(paper_id, lowest) for paper_id in pool}
