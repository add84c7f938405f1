"""Several ordinary indexes searched side by side as one: each is asked, and answers are merged by score.

Dense scores are exact, so they are those of one index of all papers. BM25 uses the statistics of each index.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import EncoderMismatchError, IndexFormatError
from qbe.index.faiss import CandidateSource
from qbe.index.lucene import KEY_TERMS, Ranked, TextSearch
from qbe.index.papers import Papers
from qbe.index.reader import IndexReader
from qbe.index.scoring import (
    Compared,
    PerSelection,
    Rows,
    Selection,
    SentenceBlock,
    VectorStore,
    sentence_rows,
)
from qbe.index.store import Manifest
from qbe.index.vectors import Floats, Quantized, Vectors

# Calls a method of `Shard` on some indexes, by number, each with its own arguments.
Ask = Callable[[str, Mapping[int, Sequence[Any]]], dict[int, Any]]
Selected = tuple[str, Any] | None  # a key of selected papers, and the papers
KEPT_SELECTIONS = 32  # of papers that a shard keeps in the form that Lucene and FAISS take


class Shard:
    """What one of several indexes is asked; arguments and answers can be sent to another process."""

    def __init__(self, reader: IndexReader) -> None:
        self._reader, self._lock = reader, threading.Lock()
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def nearest(
        self, queries: list[Floats], k: int, selected: Selected, by_mean: bool, nprobe: int | None
    ) -> list[Rows]:
        """Return the candidates of each query."""
        allowed = self._once(selected, Selection)
        return list(self._reader.candidate_source(nprobe).nearest(queries, k, allowed, by_mean))

    def of_papers(self, method: str, *arguments: Any) -> Any:
        """Call a method of the `VectorStore`."""
        return getattr(self._reader.vector_store, method)(*arguments)

    def key_terms(self, text: str) -> list[str]:
        """Return the most telling words of a text by the statistics of this index."""
        return self._reader.text_search().key_terms(text)

    def search(
        self, text: str, k: int, pool: Rows | None, selected: Selected, similarity: str = "bm25"
    ) -> Ranked:
        """Return the best papers by words, with the scores that Lucene gives."""
        lucene = self._reader.text_search(similarity)
        return lucene.unbroken(text, k, pool, self._once(selected, lucene.filtering))

    def _once(self, selected: Selected, make: Callable[[Any], Any]) -> Any:
        if selected is None:
            return None
        key, papers = selected
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make(papers)
                if len(self._kept) > KEPT_SELECTIONS:
                    self._kept.popitem(last=False)
            return self._kept[key]


def _local(papers: Papers, rows: Rows) -> tuple[Rows, dict[int, Rows]]:
    """Return the number of each paper's index (n,), and the papers by index, as rows there."""
    owners = np.searchsorted(papers.starts, rows, side="right") - 1
    numbers = np.unique(owners).tolist()
    return owners, {number: rows[owners == number] - papers.starts[number] for number in numbers}


class SeveralVectors(VectorStore, CandidateSource):
    def __init__(self, ask: Ask, papers: Papers, similarity: str, nprobe: int | None = None) -> None:
        self._ask, self._holders, self.similarity, self._nprobe = ask, papers, similarity, nprobe
        self._split = PerSelection(partial(_split, papers.starts))

    def nearest(
        self, queries: Sequence[Floats], k: int, allowed: Selection | None = None, by_mean: bool = False
    ) -> Iterator[Rows]:
        starts = self._holders.starts
        shards = dict.fromkeys(range(len(starts) - 1)) if allowed is None else self._split(allowed)
        asked = {shard: (list(queries), k, some, by_mean, self._nprobe) for shard, some in shards.items()}
        answers = sorted(self._ask("nearest", asked).items())
        for place in range(len(queries)):
            found = (answer[place] + starts[shard] for shard, answer in answers)
            yield np.concatenate([np.zeros(0, np.int64), *found])

    def gather(self, rows: Rows) -> SentenceBlock:
        _, of_sentences, answers = self._owners("gather", rows)
        positions, begins = sentence_rows(self._holders.layout.starts, rows)
        parts = {shard: block.vectors for shard, block in answers.items()}
        return SentenceBlock(_together(of_sentences, parts), begins, positions)

    def whole(self, rows: Rows) -> Vectors:
        owners, _, answers = self._owners("whole", rows)
        return _together(owners, answers)

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        owners, of_sentences, answers = self._owners("compare", rows, (sentences,), (whole,))
        similarities = np.empty((len(sentences), len(of_sentences)), np.float32)
        of_papers = None if whole is None else np.empty(len(rows), np.float32)
        for shard, compared in answers.items():
            similarities[:, of_sentences == shard] = compared.similarities
            if of_papers is not None:
                of_papers[owners == shard] = compared.whole
        positions, begins = sentence_rows(self._holders.layout.starts, rows)
        return Compared(similarities, begins, positions, of_papers)

    def _owners(
        self, method: str, rows: Rows, before: tuple[Any, ...] = (), after: tuple[Any, ...] = ()
    ) -> tuple[Rows, Rows, dict[int, Any]]:
        """Ask the indexes of papers; return which one each paper and each sentence is in, and the answers."""
        (owners, local), starts = _local(self._holders, rows), self._holders.layout.starts
        asked = {shard: (method, *before, some, *after) for shard, some in local.items()}
        return owners, np.repeat(owners, starts[rows + 1] - starts[rows]), self._ask("of_papers", asked)


def _split(starts: Rows, selection: Selection) -> dict[int, tuple[str, Any]]:
    key, masks = uuid.uuid4().hex, np.split(selection.mask, starts[1:-1])
    return {shard: (key, mask) for shard, mask in enumerate(masks) if mask.any()}


def _together(owners: Rows, parts: Mapping[int, Any]) -> Vectors:
    """Return vectors (n, dimension), row i from the part of ``owners[i]``, in a form that holds all."""
    if not parts:
        return np.zeros((0, 0), np.float16)
    if all(isinstance(part, Quantized) for part in parts.values()):
        sides: list[Any] = [
            _together(owners, {shard: getattr(part, name) for shard, part in parts.items()})
            for name in ("codes", "scales")
        ]
        return Quantized(*sides)
    kinds = {part.dtype for part in parts.values()}
    first = next(iter(parts.values()))
    result = np.empty((len(owners), *first.shape[1:]), first.dtype if len(kinds) == 1 else np.float32)
    for shard, part in parts.items():
        result[owners == shard] = np.asarray(part)
    return result


class SeveralTexts(TextSearch):
    """BM25 over the texts of several indexes, by the statistics of each."""

    def __init__(self, ask: Ask, papers: Papers, similarity: str = "bm25") -> None:
        self._ask, self._papers, self._similarity = ask, papers, similarity

    def key_terms(self, text: str, most: int = KEY_TERMS) -> list[str]:
        """Return the most telling words of a text by the statistics of the first index."""
        found: list[str] = self._ask("key_terms", {0: (text,)})[0]
        return found[:most]

    def filtering(self, rows: Rows) -> dict[int, tuple[str, Rows]]:
        key = uuid.uuid4().hex
        return {shard: (key, some) for shard, some in _local(self._papers, rows)[1].items()}

    def unbroken(self, text: str, k: int, pool: Rows | None = None, allowed: Any = None) -> Ranked:
        starts, ids = self._papers.starts, self._papers.ids
        asked: dict[int, tuple[Any, ...]]
        if pool is not None:
            asked = {shard: (rows, None) for shard, rows in _local(self._papers, pool)[1].items()}
        elif allowed is not None:
            asked = {shard: (None, some) for shard, some in allowed.items()}
        else:
            asked = dict.fromkeys(range(len(starts) - 1), (None, None))
        asked = {shard: (text, k, *some, self._similarity) for shard, some in asked.items()}
        best = sorted(
            (-score, ids[row], row)
            for shard, ranked in self._ask("search", asked).items()
            for row, score in zip((ranked.rows + starts[shard]).tolist(), ranked.scores.tolist(), strict=True)
        )[:k]
        scores = np.array([-score for score, _, _ in best], np.float64)
        return Ranked(np.array([row for _, _, row in best], np.int64), scores)


class SeveralReader(IndexReader):
    """One generation of each of several indexes."""

    def __init__(self, readers: Sequence[IndexReader], ask: Ask) -> None:
        """Raise EncoderMismatchError or IndexFormatError for readers that do not go together."""
        self.folder, self._lock, self._opened = readers[0].folder, threading.RLock(), {}
        self.readers, self._ask = readers, ask
        self.papers = Papers(*(reader._files for reader in readers))
        self.generation = sum(reader.generation for reader in readers)
        self.is_current = lambda: all(reader.is_current() for reader in readers)
        _check_together(readers)
        self.manifest = combined_manifest([reader.manifest for reader in readers])

    def _vectors(self, name: str, unit: str) -> Vectors:
        parts = [reader._vectors(name, unit)[:].astype(np.float32) for reader in self.readers]
        return np.concatenate(parts)

    @property
    def vector_store(self) -> SeveralVectors:
        return self.candidate_source()

    def candidate_source(self, nprobe: int | None = None) -> SeveralVectors:
        given = (self._ask, self.papers, self.similarity, nprobe)
        return self._open_once(("candidates", nprobe), lambda: SeveralVectors(*given))

    def text_search(self, similarity: str = "bm25") -> SeveralTexts:
        self._require("postings", self.manifest.lucene)
        return self._open_once(
            ("text search", similarity), lambda: SeveralTexts(self._ask, self.papers, similarity)
        )


def _check_together(readers: Sequence[IndexReader]) -> None:
    """Raise EncoderMismatchError or IndexFormatError unless settings agree and no paper is there twice."""
    first = readers[0].manifest
    for reader in readers[1:]:
        other = reader.manifest
        pairs = ((first.dense, other.dense, "vectors"), (first.lucene, other.lucene, "postings"))
        for one, another, part in pairs:
            if (one is None) != (another is None):
                raise IndexFormatError(
                    f"expected {part} in both {readers[0].folder} and {reader.folder} or in none, found "
                    "them in one; build them with the same settings"
                )
        keys = ("encoder", "similarity", "dimension")
        if first.dense and other.dense and any(first.dense[key] != other.dense[key] for key in keys):
            raise EncoderMismatchError(
                f"{readers[0].folder} was built with the encoder {first.dense['encoder']['name']}, "
                f"{reader.folder} with {other.dense['encoder']['name']}, or with other weights or "
                "settings of it; build both with the same"
            )
    seen: dict[str, Path] = {}
    for reader in readers:
        for paper_id in filter(seen.__contains__, reader.papers.ids):
            raise IndexFormatError(
                f"paper {paper_id!r} is in {seen[paper_id]} and in {reader.folder}; delete it from one of "
                "them"
            )
        seen |= dict.fromkeys(reader.papers.ids, reader.folder)


def combined_manifest(manifests: Sequence[Manifest]) -> Manifest:
    """Return the manifest of the first of several indexes, with the counts of all and a digest of theirs."""
    first = manifests[0]
    counts = ("papers", "labelled", "predicted", "sentences")
    sums = {name: sum(each.corpus.get(name, 0) for each in manifests) for name in counts}
    words = [each.lucene for each in manifests if each.lucene]
    lucene = first.lucene and {
        **first.lucene,
        **{name: sum(each[name] for each in words) for name in ("documents", "tokens")},
    }
    digest = hashlib.sha256("".join(each.digest for each in manifests).encode()).hexdigest()
    numbered = enumerate(manifests, 1)
    files = {f"{number}/{name}": entry for number, each in numbered for name, entry in each.files.items()}
    corpus = {**first.corpus, **sums, "sha256": digest}
    return dataclasses.replace(first, corpus=corpus, lucene=lucene, files=files, digest=digest)
