"""Lucene postings: built by Anserini's IndexCollection, updated, and searched in few calls from Python."""

import base64
import contextlib
import json
import math
import os
import re
import shutil
import threading
import unicodedata
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError, JavaError
from qbe.index import jvm
from qbe.index.papers import IDS, Papers
from qbe.index.store import Files, damaged
from qbe.index.vectors import Rows, Selection, run_starts
from qbe.types import Paper

if TYPE_CHECKING:
    from qbe.index.source import BuildSettings, Execution

LUCENE = "lucene"
# In Lucene's folder: the row of the paper of each document, (documents,) int32. Lucene numbers documents as
# its threads index them, so builds differ in this file as in Lucene's own.
ROWS = "rows.npy"
K1 = 0.9
B = 0.4  # BM25 parameters: Anserini's defaults (Yang et al., 2018)

INPUT = "lucene-input"  # the folder of Anserini's input, until the Lucene index is built
_PAPERS_A_FILE = 10_000
_IDS_AT_A_TIME = 20_000
_NEAR = np.float32(1.5e-4)  # above the difference of a ten-thousandth up to which scores count as equal
KEY_TERMS = 5  # words of a text, as many as Whoosh finds by default
_WARM_UP = 2  # uses of a costly filter before Lucene caches its documents
# Extra documents per search: all ties at the last place must be known, since ties are ordered by id.
_SPARE = 16

# Pyjnius binds a method to the object it was last looked up on, in whatever thread. So only one thread at a
# time may call methods of objects that belong to one thread, such as a builder; shared ones need no lock.
BUILDER_LOCK = threading.Lock()

# Raised and lowered signs, ligatures and other presentation forms, full width; and what is not seen, such as
# soft hyphens, which stand within words.
_FORMS = re.compile("[\u00b2\u00b3\u00b9\u2070-\u209c\ufb00-\ufdff\ufe70-\uffdc]+")
_UNSEEN = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")


def contents(paper: Paper) -> str:
    """Return the text of a paper for BM25: title and abstract, with a space between."""
    return f"{paper.title} {paper.abstract}"


def _plain(text: str) -> str:
    """Return a text or a query as it is indexed: letters in their usual form (NFC), nothing unseen.

    >>> _plain("\uff24\uff2e\uff21 in CO\u2082, in\u00adfor\u00adma\u00adtion, Go\u0308del's \ufb01sh")
    "DNA in CO2, information, G\u00f6del's fish"
    """
    if text.isascii():
        return text
    usual = _FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), _UNSEEN.sub("", text))
    return unicodedata.normalize("NFC", usual)


def write_input(folder: Path, papers: Iterable[Paper]) -> Iterator[Paper]:
    """Yield papers while writing them to ``folder/lucene-input`` as JSON lines, a file per Java thread."""
    target = folder / INPUT
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with contextlib.ExitStack() as files:
        for number, paper in enumerate(papers):
            if number % _PAPERS_A_FILE == 0:
                files.close()
                lines = files.enter_context((target / f"{number:010d}.jsonl").open("w", encoding="utf-8"))
            lines.write(json.dumps({"id": paper.paper_id, "contents": _plain(contents(paper))}) + "\n")
            yield paper


def write_lucene_index(
    folder: Path, count: int, settings: "BuildSettings", execution: "Execution"
) -> dict[str, Any]:
    """Index the ``count`` papers that `write_input` wrote; return version, settings and term statistics."""
    execution.progress("indexing with Lucene")
    with _building(folder, count) as statistics:
        _index_input(folder, settings, execution.threads)
    stored = {"positions": settings.positions, "docvectors": settings.docvectors}
    return {"version": jvm.lucene_version(), "k1": K1, "b": B, **stored, **statistics}


def _index_input(folder: Path, settings: "BuildSettings", threads: int) -> None:
    shutil.rmtree(folder / LUCENE, ignore_errors=True)
    jvm.silence_log4j()
    arguments = jvm.java_class("io.anserini.index.IndexCollection$Args")()
    given = {
        "collectionClass": "JsonCollection",
        "generatorClass": "DefaultLuceneDocumentGenerator",
        "input": str(folder / INPUT),
        "index": str(folder / LUCENE),
        "threads": threads,
        "storePositions": settings.positions,
        "storeDocvectors": settings.docvectors,
        "optimize": True,
        "quiet": True,
    }
    for name, value in given.items():
        setattr(arguments, name, value)
    indexer = jvm.java_class("io.anserini.index.IndexCollection")(arguments)
    jvm.silence_log4j()
    indexer.run()


def update_lucene(
    folder: Path,
    old: Path,
    added: Path | None,
    deleted: Sequence[str],
    settings: "BuildSettings",
    threads: int,
) -> dict[str, Any]:
    """Write ``folder/lucene``: that of ``old`` without ``deleted`` papers and with those of ``added``.

    The papers of ``folder`` must be there already. Files of ``old`` are linked: Lucene never changes one.
    Postings that an earlier major version of Lucene created take no others: all papers are indexed again.
    """
    papers = Papers(Files(folder), predictions=False)
    with _building(folder, len(papers), "try again") as statistics:
        directory = jvm.open_lucene(old / LUCENE, reading=False)
        before = jvm.java_class("org.apache.lucene.index.SegmentInfos").readLatestCommit(directory)
        if before.getIndexCreatedVersionMajor() == int(jvm.lucene_version().partition(".")[0]):
            _change_postings(folder / LUCENE, old / LUCENE, added and added / LUCENE, deleted)
        else:
            deque(write_input(folder, papers.read_from(0)), maxlen=0)
            _index_input(folder, settings, threads)
            shutil.rmtree(folder / INPUT)
    return {"version": jvm.lucene_version(), **statistics}


def _change_postings(target: Path, old: Path, added: Path | None, deleted: Sequence[str]) -> None:
    java = jvm.java_class
    target.mkdir()
    for file in old.iterdir():
        if file.name not in (ROWS, "write.lock"):
            try:
                os.link(file, target / file.name)
            except OSError:  # where links are impossible
                shutil.copyfile(file, target / file.name)
    analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    config = java("org.apache.lucene.index.IndexWriterConfig")(analyzer)
    config.setMergeScheduler(java("org.apache.lucene.index.SerialMergeScheduler")())
    config.setSimilarity(java("org.apache.lucene.search.similarities.BM25Similarity")(K1, B))
    writer = java("org.apache.lucene.index.IndexWriter")(jvm.open_lucene(target, reading=False), config)
    with contextlib.closing(writer):
        term, query = java("org.apache.lucene.index.Term"), java("org.apache.lucene.search.TermQuery")
        for first in range(0, len(deleted), _IDS_AT_A_TIME):
            some = deleted[first : first + _IDS_AT_A_TIME]
            writer.deleteDocuments([query(term("id", paper_id)) for paper_id in some])
        if added is not None:
            writer.addIndexes([jvm.open_lucene(added, reading=False)])
        writer.forceMerge(1)  # drops deleted papers from the statistics too
        writer.commit()


@contextlib.contextmanager
def _building(folder: Path, count: int, advice: str = "go on with `resume`") -> Iterator[dict[str, int]]:
    """Give the term statistics of what the block indexes; convert errors, of which a full disk has many."""
    java, statistics = jvm.java_class, dict[str, int]()
    failure: Exception | None = None
    try:
        yield statistics
        with contextlib.closing(jvm.open_lucene(folder / LUCENE)) as reader:
            statistics |= {"documents": reader.numDocs(), "tokens": reader.getSumTotalTermFreq("contents")}
            if statistics["documents"] == count:
                searcher = java("org.apache.lucene.search.IndexSearcher")(reader.getContext())
                query = java("org.apache.lucene.search.MatchAllDocsQuery")()
                last, ids = None, list[str]()
                while len(ids) < count:  # by number, since scores are equal; all at once fill Java's heap
                    top = searcher.searchAfter(last, query, _IDS_AT_A_TIME)
                    ids += java("io.anserini.search.ScoredDocs").fromTopDocs(top, searcher).docids
                    last = java("org.apache.lucene.search.ScoreDoc")(len(ids) - 1, 1.0)
                lines = (folder / IDS).read_text("utf-8").split("\n")
                row_of = {paper_id: row for row, paper_id in enumerate(lines)}
                np.save(folder / LUCENE / ROWS, np.array([row_of[paper_id] for paper_id in ids], np.int32))
        result = f"{statistics['documents']} documents"
    except Exception as error:
        failure, result = error, jvm.java_message(error)
    if failure is not None or statistics["documents"] != count:
        raise IndexBuildError(
            f"expected Lucene to index {count} papers into {folder / LUCENE}, found {result} and "
            f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB left on the disk; check its space, and {advice}"
        ) from failure


class Ranked(NamedTuple):
    """Papers, best first: their ``rows`` (n,) int64 and ``scores`` (n,) float64."""

    rows: Rows
    scores: NDArray[np.float64]


class TextSearch:
    """Search as Anserini's SimpleSearcher does, with the same scores and order, but without the stored fields
    of each hit: a result is one JSON text, and ties are ordered afterwards.

    Lucene's ``reader`` is closed once nobody refers to it; ``rows`` are those of documents.
    """

    def __init__(
        self, files: Files, ids: Sequence[str], lucene: Mapping[str, Any], similarity: str = "bm25"
    ) -> None:
        """Open postings for BM25, by a manifest's ``lucene``, or ``tfidf``, Lucene's ClassicSimilarity."""
        java, path = jvm.java_class, files.folder / LUCENE
        java("java.lang.Object")
        try:
            self.reader = jvm.open_lucene(path)
        except JavaError:
            raise
        except Exception as error:
            expected = f"an index that Lucene {jvm.lucene_version()} can read"
            raise damaged(path, expected, jvm.java_message(error)) from error
        weakref.finalize(self, lambda reader: reader.close(), self.reader).atexit = False
        self.rows, self._ids = files.array(f"{LUCENE}/{ROWS}", "int32", 1), ids
        if not np.array_equal(np.sort(self.rows), np.arange(len(ids))) or self.reader.maxDoc() != len(ids):
            raise damaged(path, f"documents of {len(ids)} papers", f"{len(self.rows)} others")
        self._searcher = java("org.apache.lucene.search.IndexSearcher")(self.reader.getContext())
        similarities = "org.apache.lucene.search.similarities"
        if similarity == "bm25":
            chosen = java(f"{similarities}.BM25Similarity")(lucene["k1"], lucene["b"])
        else:
            chosen = java(f"{similarities}.ClassicSimilarity")()
        self._searcher.setSimilarity(chosen)
        self._analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        self._generator = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
        self._writer = mapper.writer()
        terms = java("java.lang.Class").forName("org.apache.lucene.util.BytesRef")
        self._terms = mapper.readerForListOf(terms)

    def search(self, text: str, k: int, pool: Rows | None = None, allowed: Selection | None = None) -> Ranked:
        """Return the best hits for a bag of words, with the scores that Lucene gives, some of them equal.

        A ``pool`` (rows) is ranked as it is: also papers without any of the words. ``allowed`` restricts the
        hits and changes no score.
        """
        query = self._generator.buildQuery("contents", self._analyzer, _plain(text))
        if pool is not None or allowed is not None:  # these papers add nothing to a score
            java = jvm.java_class
            occur = java("org.apache.lucene.search.BooleanClause$Occur")
            if pool is not None:
                papers = self._of(pool)
            else:
                assert allowed is not None
                papers = allowed.once("filter", lambda: self._of(allowed.rows, _WARM_UP))
            with BUILDER_LOCK:
                builder = java("org.apache.lucene.search.BooleanQuery$Builder")()
                builder.add(query, occur.MUST if pool is None else occur.SHOULD)
                builder.add(papers, occur.FILTER)
                query = builder.build()
        k = min(k, len(self.rows))
        wanted = k + _SPARE
        while True:
            found = self._writer.writeValueAsString(self._searcher.search(query, wanted))
            top = json.loads(found)["scoreDocs"]
            rows = self.rows[np.array([each["doc"] for each in top], dtype=np.int64)].astype(np.int64)
            # Java writes the shortest decimal that reads back as the same single-precision number.
            scores = np.array([each["score"] for each in top], dtype=np.float32).astype(np.float64)
            if len(rows) < wanted or (len(rows) > k and scores[k - 1] > scores[-1]):
                break
            wanted *= 2
        begins = run_starts(scores).tolist()
        if len(begins) < len(scores):  # ties by id
            ordered = rows.tolist()
            for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
                if end - begin > 1:
                    ordered[begin:end] = sorted(ordered[begin:end], key=self._ids.__getitem__)
            rows = np.array(ordered, dtype=np.int64)
        return Ranked(rows[:k], scores[:k])

    def key_terms(self, text: str) -> list[str]:
        """Return the most telling words of a text, best first, as Whoosh's `key_terms_from_text` finds them.

        They are those of the greatest Bo1 weight (Amati, 2003): frequent here, and rare in the collection.
        """
        java, reader = jvm.java_class, self.reader
        analysis, term = java("io.anserini.analysis.AnalyzerUtils"), java("org.apache.lucene.index.Term")
        counts, words = Counter[str](), dict[str, str]()
        for word in re.findall(r"\w+", _plain(text)):
            stems = analysis.analyze(self._analyzer, word)
            for stem in json.loads(self._writer.writeValueAsString(stems)):
                counts[stem] += 1
                words.setdefault(stem, word)
        weights = dict[str, float]()
        for stem, count in counts.items():
            if share := reader.totalTermFreq(term("contents", stem)) / len(self.rows):
                weights[stem] = count * math.log2((1 + share) / share) + math.log2(1 + share)
        return [words[stem] for stem in sorted(weights, key=lambda stem: (-weights[stem], stem))[:KEY_TERMS]]

    def _of(self, rows: Rows, uses: int = 0) -> Any:
        """Return a query that matches the papers at these rows, after so many uses of it."""
        refs = []
        for row in rows.tolist():
            encoded = self._ids[row].encode()
            refs.append({"bytes": base64.b64encode(encoded).decode(), "offset": 0, "length": len(encoded)})
        ids = self._terms.readValue(json.dumps(refs))  # as JSON of Lucene's BytesRef
        query = jvm.java_class("org.apache.lucene.search.TermInSetQuery")("id", ids)
        for _ in range(uses):
            self._searcher.count(query)
        return query


def break_ties(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round descending scores (n,) to four decimals and lower equal ones by millionths, as Anserini does."""
    adjusted = (np.floor(scores * 10_000 + 0.5) / 10_000).astype(np.float32)
    run = 0
    # Most scores are further apart: there is work only behind one that is near enough, or was lowered.
    near = (adjusted[:-1] - adjusted[1:] <= _NEAR).tolist()
    place = near.index(True) + 1 if True in near else len(adjusted)
    while place < len(adjusted):
        tied = not adjusted[place - 1] - adjusted[place] > np.float32(1e-4)
        run = run + 1 if tied else 0
        adjusted[place] -= np.float32(1e-6) * np.float32(run)
        place += 1
        while not tied and place < len(adjusted) and not near[place - 1]:
            place += 1
    return adjusted.astype(np.float64)
