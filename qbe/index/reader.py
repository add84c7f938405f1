"""The papers, vectors and postings of one generation of an index, or of several indexes side by side."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qbe.errors import EncoderMismatchError, IndexFormatError, PaperNotFoundError, UsageError
from qbe.index import vectors
from qbe.index.faiss import CandidateSource, FaissIndex
from qbe.index.lucene import Ranked, TextSearch
from qbe.index.papers import MOST, Mask, Names, PaperLayout, Papers, facet_mask, shortcuts
from qbe.index.store import FaissParams, Manifest, damaged, open_generation
from qbe.index.vectors import Compared, Floats, Once, Quantized, Rows, Selection, SentenceBlock, Vectors
from qbe.models.encoding import PaperVectors
from qbe.types import Facet, Paper

_SHOWN = 3  # papers that a message names where a name is that of several

Allowed = Selection | None  # the papers that a search may find

# Calls a method of `IndexReader` on some of several indexes, by number, each with its own arguments.
Ask = Callable[[str, Mapping[int, Sequence[Any]]], dict[int, Any]]


class IndexReader(Once):
    """The papers, vectors and postings of one generation of an index, each opened when first used.

    It never changes, and threads may share it. Once nobody refers to it, writers may remove what it read.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        super().__init__()
        self.folder, self._threads = folder, threads
        self._files = open_generation(folder)
        self.manifest: Manifest = self._files.manifest
        self.generation = self._files.number
        self.papers = Papers(self._files)
        if len(self.papers) != (count := self.manifest.corpus["papers"]):
            raise damaged(self._files.folder / "papers.ids", f"{count} papers", len(self.papers))
        self.is_current: Callable[[], bool] = self._files.is_current

    def __len__(self) -> int:
        return len(self.papers)

    def __iter__(self) -> Iterator[Paper]:
        return self.papers.read_from(0)

    def __contains__(self, paper_id: object) -> bool:
        return isinstance(paper_id, str) and self.papers.find(paper_id) is not None

    def paper(self, paper_id: str) -> Paper:
        """A paper by id; raises PaperNotFoundError."""
        return self.papers[self.papers.row(paper_id)]

    @property
    def names(self) -> Names:
        return self.once("names", lambda: Names(self.papers))

    def find(self, name: str, *, titles: bool = True) -> Paper:
        """Return the one paper of an id, DOI, arXiv or ACL id, URL or, with ``titles``, (part of) a title."""
        if self.papers.find(name) is not None:
            return self.paper(name)
        ids = [each for each in shortcuts(name) if self.papers.find(each) is not None][:1]
        ids = ids or self.names.find(name, titles=titles)
        if len(ids) == 1:
            return self.paper(ids[0])
        text = (
            f"the id, DOI, arXiv id or title of one of the {len(self)} papers of the index, found {name!r}; "
            "qbe list shows ids and titles"
        )
        if ids:
            shown = [f"{paper_id} ({self.paper(paper_id).title:.60})" for paper_id in ids[:_SHOWN]]
            shown += ["..."] if len(ids) > _SHOWN else []
            count = f"{len(ids):,}" if len(ids) < MOST else f"{MOST:,} or more"
            text = (
                f"the name of one paper, found {count} with {name!r} in their titles: {', '.join(shown)}; "
                "give an id, or more of the title"
            )
        raise PaperNotFoundError(f"expected {text}")

    def require_vectors(self) -> None:
        """Raise IndexFormatError where the index has no vectors."""
        self._require("vectors", self.manifest.dense)

    def _require(self, part: str, described: object) -> None:
        if described is None:
            raise IndexFormatError(
                f"{self.folder}: expected an index with {part}, found one built without; build it with both "
                "postings and vectors, or search with another `first_stage` or `rerank`"
            )

    @property
    def layout(self) -> PaperLayout:
        """Where each paper's sentences lie among the sentence vectors, and their facets."""
        return self.papers.layout

    def facet_mask(self, facet: Facet) -> Mask:
        """Return which sentences (sentences,) count as a facet; see `qbe.index.papers.facet_mask`."""
        return self.once(facet, lambda: facet_mask(self.layout, facet))

    @property
    def similarity(self) -> str:
        self.require_vectors()
        return self.manifest.similarity

    @property
    def sentence_vectors(self) -> Vectors:
        """Vectors of all sentences, (sentences, dimension), as stored, memory-mapped."""
        return self._vectors(vectors.SENTENCES, "sentences")

    @property
    def whole_vectors(self) -> Vectors:
        """One vector a paper, (papers, dimension), likewise."""
        return self._vectors(vectors.WHOLE, "papers")

    def _vectors(self, name: str, unit: str) -> Vectors:
        self.require_vectors()

        def read() -> Vectors:
            assert self.manifest.dense is not None
            stored = vectors.open_vectors(self._files, name, self.manifest.dense["stored"])
            if len(stored) != (count := self.manifest.corpus[unit]):
                raise damaged(self._files.folder / name, f"vectors of {count} {unit}", len(stored))
            return stored

        return self.once(name, read)

    def gather(self, rows: Rows) -> SentenceBlock:
        """Return the sentence vectors of papers (n,)."""
        positions, begins = vectors.sentence_rows(self.layout.starts, rows)
        return SentenceBlock(self.sentence_vectors[positions], begins, positions)

    def whole(self, rows: Rows) -> Vectors:
        """Return the vectors (n, dimension) of papers (n,)."""
        return self.whole_vectors[rows]

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """Compare papers (n,) exactly with a query's ``sentences`` (m, dimension) and ``whole``."""
        block, compare = self.gather(rows), partial(vectors.similarities, similarity=self.similarity)
        of_papers = None if whole is None else compare(whole[None], self.whole(rows))[0]
        return Compared(compare(sentences, block.vectors), block.starts, block.rows, of_papers)

    def candidate_source(self, nprobe: int | None = None) -> CandidateSource:
        self.require_vectors()
        if nprobe is not None and nprobe < 1:
            raise UsageError(f"expected `nprobe` of at least 1, found {nprobe}")

        def opened() -> CandidateSource:
            params = FaissParams.read(self.manifest.dense or {})
            return CandidateSource(FaissIndex(self._files, self._threads, params, nprobe), self.layout.starts)

        return self.once(("candidates", nprobe), opened)

    def nearest(
        self,
        queries: Sequence[Floats],
        k: int,
        allowed: Allowed = None,
        by_mean: bool = False,
        nprobe: int | None = None,
    ) -> list[Rows]:
        """Return the candidates of each query; see `qbe.index.faiss.CandidateSource.nearest`."""
        return list(self.candidate_source(nprobe).nearest(queries, k, allowed, by_mean))

    def text_search(self, similarity: str = "bm25") -> TextSearch:
        """Open what searches the texts by BM25 or tf-idf, once; of several indexes their processes do."""
        self._require("postings", self.manifest.lucene)
        return self.once(
            ("texts", similarity),
            lambda: TextSearch(self._files, self.papers.ids, self.manifest.lucene or {}, similarity),
        )

    def search(
        self, text: str, k: int, pool: Rows | None = None, allowed: Allowed = None, similarity: str = "bm25"
    ) -> Ranked:
        """Return the best papers for a bag of words; see `qbe.index.lucene.TextSearch.search`."""
        return self.text_search(similarity).search(text, k, pool, allowed)

    def key_terms(self, text: str) -> list[str]:
        """Return the most telling words of a text; see `qbe.index.lucene.TextSearch.key_terms`."""
        return self.text_search().key_terms(text)

    def stored_vectors(self, paper: Paper) -> PaperVectors | None:
        """Return the stored vectors of a paper, if the index has one of its id with the same texts."""
        self.require_vectors()
        row = self.papers.find(paper.paper_id)
        if row is None:
            return None
        texts, own = (
            (each.title, [sentence.text for sentence in each.sentences]) for each in (paper, self.papers[row])
        )
        if own != texts:
            return None
        sentences, whole = self.gather(np.array([row])).vectors, self.whole(np.array([row]))
        return PaperVectors(sentences.astype(np.float32), whole.astype(np.float32)[0])


class SeveralReader(IndexReader):
    """One generation of each of several indexes: each is asked, and answers are merged by score.

    Dense scores are exact, so they are those of one index of all papers. BM25 uses the statistics of each
    index, key terms those of the first.
    """

    def __init__(self, readers: Sequence[IndexReader], ask: Ask) -> None:
        """Raise EncoderMismatchError or IndexFormatError for readers that do not go together."""
        Once.__init__(self)
        self.folder, self.readers, self._ask = readers[0].folder, readers, ask
        self.papers = Papers(*(reader._files for reader in readers))
        self.generation = sum(reader.generation for reader in readers)
        self.is_current = lambda: all(reader.is_current() for reader in readers)
        _check_together(readers)
        self.manifest = combined_manifest([reader.manifest for reader in readers])

    def _vectors(self, name: str, unit: str) -> Vectors:
        return np.concatenate([reader._vectors(name, unit)[:].astype(np.float32) for reader in self.readers])

    def gather(self, rows: Rows) -> SentenceBlock:
        (owners, local), starts = self._local(rows), self.layout.starts
        answers = self._ask("gather", {number: (some,) for number, some in local.items()})
        parts = {number: block.vectors for number, block in answers.items()}
        positions, begins = vectors.sentence_rows(starts, rows)
        of_sentences = np.repeat(owners, starts[rows + 1] - starts[rows])
        return SentenceBlock(_together(of_sentences, parts), begins, positions)

    def whole(self, rows: Rows) -> Vectors:
        owners, local = self._local(rows)
        return _together(owners, self._ask("whole", {number: (some,) for number, some in local.items()}))

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        (owners, local), starts = self._local(rows), self.layout.starts
        answers = self._ask("compare", {number: (sentences, some, whole) for number, some in local.items()})
        of_sentences = np.repeat(owners, starts[rows + 1] - starts[rows])
        similarities = np.empty((len(sentences), len(of_sentences)), np.float32)
        of_papers = None if whole is None else np.empty(len(rows), np.float32)
        for number, compared in answers.items():
            similarities[:, of_sentences == number] = compared.similarities
            if of_papers is not None:
                of_papers[owners == number] = compared.whole
        positions, begins = vectors.sentence_rows(starts, rows)
        return Compared(similarities, begins, positions, of_papers)

    def nearest(
        self,
        queries: Sequence[Floats],
        k: int,
        allowed: Allowed = None,
        by_mean: bool = False,
        nprobe: int | None = None,
    ) -> list[Rows]:
        parts, none = self._parts(allowed), np.zeros(0, np.int64)
        asked = {number: (queries, k, part, by_mean, nprobe) for number, part in parts.items()}
        answers, starts = sorted(self._ask("nearest", asked).items()), self.papers.starts
        return [
            np.concatenate([none, *(answer[place] + starts[number] for number, answer in answers)])
            for place in range(len(queries))
        ]

    def text_search(self, similarity: str = "bm25") -> Any:  # noqa: ARG002
        self._require("postings", self.manifest.lucene)

    def search(
        self, text: str, k: int, pool: Rows | None = None, allowed: Allowed = None, similarity: str = "bm25"
    ) -> Ranked:
        some: Mapping[int, tuple[Any, Any]]
        if pool is not None:
            some = {number: (rows, None) for number, rows in self._local(pool)[1].items()}
        else:
            some = {number: (None, part) for number, part in self._parts(allowed).items()}
        answers = self._ask("search", {number: (text, k, *each, similarity) for number, each in some.items()})
        best = sorted(
            (-score, self.papers.ids[row], row)
            for number, ranked in answers.items()
            for row, score in zip(
                (ranked.rows + self.papers.starts[number]).tolist(), ranked.scores.tolist(), strict=True
            )
        )[:k]
        scores = np.array([-score for score, _, _ in best], np.float64)
        return Ranked(np.array([row for _, _, row in best], np.int64), scores)

    def key_terms(self, text: str) -> list[str]:
        found: list[str] = self._ask("key_terms", {0: (text,)})[0]
        return found

    def _local(self, rows: Rows) -> tuple[Rows, dict[int, Rows]]:
        """Return the number of each paper's index (n,), and the papers by index, as rows there."""
        starts = self.papers.starts
        owners = np.searchsorted(starts, rows, side="right") - 1
        return owners, {n: rows[owners == n] - starts[n] for n in np.unique(owners).tolist()}

    def _parts(self, allowed: Allowed) -> Mapping[int, Allowed]:
        """Return the selected papers of each index that has some."""
        if allowed is None:
            return dict.fromkeys(range(len(self.papers.starts) - 1))
        masks = np.split(allowed.mask, self.papers.starts[1:-1])
        return allowed.once(
            "parts", lambda: {number: Selection(mask) for number, mask in enumerate(masks) if mask.any()}
        )


def _together(owners: Rows, parts: Mapping[int, Any]) -> Vectors:
    """Return vectors (n, dimension), row i from the part of ``owners[i]``, in a form that holds all."""
    if not parts:
        return np.zeros((0, 0), np.float16)
    if all(isinstance(part, Quantized) for part in parts.values()):
        codes, scales = (
            _together(owners, {number: getattr(part, name) for number, part in parts.items()})
            for name in ("codes", "scales")
        )
        return Quantized(codes, scales)  # type: ignore[arg-type]
    kinds = {part.dtype for part in parts.values()}
    first = next(iter(parts.values()))
    result = np.empty((len(owners), *first.shape[1:]), first.dtype if len(kinds) == 1 else np.float32)
    for number, part in parts.items():
        result[owners == number] = np.asarray(part)
    return result


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
