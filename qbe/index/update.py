"""Updating an index: its next generation is written out of the newest one and the papers that are new.

Lucene's files are linked and changed by Lucene, records and vectors copied, FAISS's index filled anew.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from qbe.corpus.identity import MADE, Seen, are_apart, content_id, made_id, second_id, told_apart, usable_id
from qbe.corpus.records import AS_IT_COMES, KEPT, RENAMED, Reading, RejectedRecords, Splitter, paper_to_record
from qbe.errors import PaperNotFoundError, UsageError
from qbe.index import build, papers, store
from qbe.index.build import BuildModels, State
from qbe.index.faiss import FAISS, write_faiss
from qbe.index.lucene import update_lucene, write_lucene_index
from qbe.index.papers import Papers, contradicts, differs_little, encode_paper, without_labels
from qbe.index.source import BuildSettings, Corpus, Execution, Source, matching_encoder, open_corpus
from qbe.index.store import RECORDS, FaissParams, Files, Generation
from qbe.index.vectors import SENTENCES, WHOLE, open_vectors, sentence_rows, writing_vectors
from qbe.models.tagger import TaggingEncoder
from qbe.types import Paper

_ROWS = 65_536  # of vectors that are copied at a time
# What becomes of a corpus's papers that an index holds with other content, and of papers that the corpus
# lacks: the index keeps both; the first are replaced; the first are replaced and the second deleted.
APPEND, UPDATE, SYNC = "append", "update", "sync"
NAMED = 3  # how many papers an error names


@dataclass(frozen=True, slots=True)
class Written:
    """What an update did, in papers, and the index afterwards. ``replaced`` ones are neither ``added`` nor
    ``deleted``; ``left_out`` counts skipped records by reason; ``kept`` are ids of papers of which the corpus
    has other content; ``deleted_titles`` are by id.
    """

    added: int
    replaced: int
    deleted: int
    papers: int
    generation: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    unchanged: int = 0
    kept: tuple[str, ...] = ()
    deleted_titles: Mapping[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        unchanged = f"{self.unchanged:,} unchanged, " if self.unchanged else ""
        return (
            f"{self.added:,} papers added, {self.replaced:,} replaced, {self.deleted:,} deleted, "
            f"{unchanged}now {self.papers:,}, generation {self.generation}"
        )


def append_papers(folder: str | Path, corpus: Corpus, *, update: bool = False, **named: Any) -> Written:
    """Add the papers of a corpus to an index, encoded with the index's settings, as its next generation.

    Of a paper that it has with other content under the same id the index keeps its own, or with ``update``
    takes the corpus's. Another paper with a citation key of the index gets another id, as in a build. With
    ``reading.dedupe`` papers that repeat one of the index by title or DOI are left out. ``encoder`` and
    ``tagger`` (a name or folder) say where those of the index are now, ``device`` runs the encoder.

    Raises IndexBuildError for another tagger and where another process writes, EncoderMismatchError, and what
    `qbe.index.build.build` does; then the index is unchanged.
    """
    return _change(folder, corpus, UPDATE if update else APPEND, **named)


def sync_papers(folder: str | Path, corpus: Corpus, **named: Any) -> Written:
    """Make the papers of an index those of a corpus, in one generation.

    A paper whose record was skipped stays. Without ``reading`` files are read as when the index was built.
    Without ``overwrite`` raises UsageError before more than one paper and a tenth of all are deleted, or any
    while skipped records do not tell their ids.
    """
    return _change(folder, corpus, SYNC, **named)


def _change(
    folder: str | Path,
    corpus: Corpus,
    how: str,
    *,
    reading: Reading = AS_IT_COMES,
    overwrite: bool = False,
    execution: Execution | None = None,
    **models: str | None,
) -> Written:
    """Write what a corpus changes of an index, if anything; ``how`` is that of `Additions`."""
    if how == SYNC and reading.limit is not None:
        raise UsageError("`limit` is of no use with `sync`, which would delete the papers beyond it; drop it")
    source = None if how == SYNC else open_corpus(corpus, reading)  # a stream's errors are not of writing
    with store.writing(folder) as generation:
        index, manifest, execution = generation.index, generation.manifest, execution or Execution()
        if how == SYNC and reading == AS_IT_COMES:
            reading = Reading(**{**manifest.corpus.get("reading", {}), "limit": None})
        source = source or open_corpus(corpus, reading)
        changed = {name: value for name, value in models.items() if value is not None}
        settings = BuildSettings.read(manifest.settings, **changed)
        if manifest.dense is not None:
            matching_encoder(index, manifest, settings.encoder)
        before = Papers(generation, predictions=False)
        additions = Additions(source, before, how, settings.dense and settings.facets == "predicted")
        part = index / store.NEXT / "added"
        part.mkdir(parents=True)
        added = BuildModels(settings, execution.threads, manifest.tagger)
        with build.recorded(index, keeps=how != SYNC) as left_out:
            new = dataclasses.replace(source, papers=additions.read)
            state = build.read_papers(part, new, added, execution, left_out)
            if additions.unexpected and not overwrite:
                raise UsageError(
                    f"expected {additions.unexpected}; nothing was changed: check the corpus, or delete them "
                    "by `overwrite`"
                )
        if additions.written:
            if settings.bm25:
                write_lucene_index(part, additions.written, settings, execution)
            if added.encoder is not None:
                tagging = TaggingEncoder(added.encoder, added.tagger if state["tagger"] else None)
                build.encode_papers(part, tagging, store.FLOAT16, state, execution)
        dead = sorted({*additions.replaced, *additions.gone})
        number = generation.number
        if additions.written or dead:
            state["names"] = [*dict.fromkeys([*manifest.settings["corpus"], *source.names])]
            new_papers = (part, state) if additions.written else None
            number = write_next(generation, dead, new_papers, settings, execution)
        return Written(
            added=additions.written - len(additions.replaced),
            replaced=len(additions.replaced),
            deleted=len(additions.gone),
            papers=len(before) + additions.written - len(dead),
            generation=number,
            left_out=left_out.counts(),
            unchanged=additions.unchanged,
            kept=tuple(additions.kept),
            deleted_titles={before.ids[row]: title for row, title in additions.gone.items()},
        )


def delete_papers(
    folder: str | Path, paper_ids: Iterable[str], *, execution: Execution | None = None
) -> Written:
    """Delete papers from an index; none where it lacks one of the ids, or would be left empty."""
    paper_ids = list(paper_ids)
    with store.writing(folder) as generation:
        before, index = Papers(generation, predictions=False), generation.index
        rows = {paper_id: before.find(paper_id) for paper_id in paper_ids}
        if unknown := [paper_id for paper_id, row in rows.items() if row is None]:
            raise PaperNotFoundError(
                f"expected ids of papers of {index}, found {len(unknown)} of {len(rows)} that it lacks, "
                f"such as {unknown[0]!r}; nothing was deleted: check them"
            )
        if not 0 < len(rows) < len(before):
            several = f"1 to {len(before) - 1} of the {len(before)} papers"
            raise UsageError(
                f"expected ids of {several if len(before) > 1 else 'papers beside the only one'} of {index}, "
                f"found {len(rows)}; an index keeps at least one paper: remove the folder to be rid of all"
            )
        dead = sorted(row for row in rows.values() if row is not None)
        settings = BuildSettings.read(generation.manifest.settings)
        number = write_next(generation, dead, None, settings, execution or Execution())
        return Written(0, 0, len(dead), len(before) - len(dead), number)


def write_next(
    generation: Generation,
    dead: Sequence[int],
    added: tuple[Path, State] | None,
    settings: BuildSettings,
    execution: Execution,
) -> int:
    """Write and publish the next generation, without the ``dead`` rows, and with the papers ``added``: the
    folder of their files, and the state of its build with the ``names`` of all sources.

    The result is that of a build of these papers in this order, but for FAISS's centroids and codes, which
    are kept until the number of sentences has doubled, and for vectors in bytes, which stay so.
    """
    manifest, folder = generation.manifest, generation.index / store.NEXT / "generation"
    generation.verify()  # damage that was copied would have valid digests
    execution.progress("copying")
    folder.mkdir(parents=True)
    parts = [generation, Files(added[0])] if added else [generation]
    old = Papers(*parts, predictions=False)
    rows = np.delete(np.arange(len(old)), dead)
    sentences = sentence_rows(old.layout.starts, rows)[0]
    with (folder / RECORDS).open("wb") as records, (folder / papers.IDS).open("w", encoding="utf-8") as ids:
        for row in rows.tolist():
            records.write(old.line(row)[1])
            ids.write(old.ids[row] + "\n")
    lengths = np.concatenate([np.diff(offsets) for offsets in old.offsets])
    for name, sizes in ((papers.OFFSETS, lengths), (papers.STARTS_FILE, np.diff(old.layout.starts))):
        np.save(folder / name, np.cumsum(np.concatenate([[0], sizes[rows]]), dtype=np.int64))
    np.save(folder / papers.FACETS_FILE, old.layout.facets[sentences])

    gone = {"papers": len(dead), "labelled": sum(old[row].labelled for row in dead)}
    gone["predicted"] = gone["papers"] - gone["labelled"] if manifest.dense else 0
    counts: dict[str, Any] = {
        name: manifest.corpus[name] - count + (added[1]["counts"][name] if added else 0)
        for name, count in gone.items()
    }
    counts["sentences"] = len(sentences)
    counts |= {name: value for name, value in manifest.corpus.items() if name == "reading"}
    counts["updates"] = manifest.corpus.get("updates", 0) + 1
    tagger = manifest.tagger or (added and added[1]["tagger"])
    recorded = settings.record(added[1]["names"]) if added else manifest.settings
    state: State = {"inputs": {"settings": recorded}, "counts": counts}
    state["tagger"] = tagger if counts["predicted"] else None
    if manifest.lucene is not None:
        execution.progress("indexing with Lucene")
        changes = added and added[0], [old.ids[row] for row in dead]
        written = update_lucene(folder, generation.folder, *changes, settings, execution.threads)
        state["lucene"] = {**manifest.lucene, **written}
    if manifest.dense is not None:
        if (shares := Papers(*parts).layout.probabilities) is not None and counts["predicted"]:
            np.save(folder / papers.PROBABILITIES_FILE, shares[sentences])
        # Half precision is not made of bytes again.
        form = manifest.dense["stored"]
        stored = store.INT8 if form == store.INT8 else store.resolve_stored(settings.stored, len(sentences))
        dimension, similarity = manifest.dense["dimension"], manifest.similarity
        for name, chosen in ((SENTENCES, sentences), (WHOLE, rows)):
            with writing_vectors(folder, name, (len(chosen), dimension), stored, similarity) as write:
                first = 0
                for part, kind in zip(parts, (form, store.FLOAT16), strict=False):
                    vectors = open_vectors(part, name, kind)
                    own = chosen[(chosen >= first) & (chosen < first + len(vectors))] - first
                    for begin in range(0, len(own), _ROWS):
                        write(vectors[own[begin : begin + _ROWS]])
                    first += len(vectors)
        params, learned = FaissParams(), None
        with contextlib.suppress(UsageError):  # exact where too few sentences are left
            params = store.resolve(settings.faiss, len(sentences), dimension)
        before = FaissParams.read(manifest.dense)
        trained = manifest.dense.get("trained", manifest.corpus["sentences"])
        if before.learns and params.learns and trained / 2 < len(sentences) < trained * 2:
            params, learned = before, (generation.folder / FAISS, not dead, trained)
        vectors = open_vectors(Files(folder), SENTENCES, stored)
        faiss = write_faiss(folder, vectors, similarity, params, execution, learned)
        kept = {name: manifest.dense[name] for name in ("encoder", "dimension", "similarity")}
        state["dense"] = {**kept, "stored": stored, **faiss}
    build.describe(folder, state)
    return int(store.publish(folder, generation.index).name)


class Additions:
    """The papers of a source that are new to an index or replace some of it; then also those that go."""

    def __init__(self, source: Source, papers: Papers, how: str, drops_labels: bool) -> None:
        self._source, self._papers, self._how, self._drops_labels = source, papers, how, drops_labels
        self._seen, self._ids = set[int](), set[str]()
        self.written, self.unchanged = 0, 0
        self.replaced, self.kept = list[int](), list[str]()
        self.gone: dict[int, str] = {}
        self.unexpected = ""  # what was expected and found, where many papers go

    def read(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
        """Yield the papers to write; know at their end which ones go."""
        papers, by, before = self._papers, self._source.reading.get("dedupe"), None
        former: set[int] = set()  # papers without an id of their own so far
        if by is not None and self._how != SYNC:
            before = Seen(by)
            for paper_id, title, metadata in papers.read_headings():
                before.add(Paper(paper_id, title, (), metadata=metadata), paper_id)
        for each in self._source.papers(split, left_out):
            paper, row = self._placed(each)
            if row is not None:
                self._seen.add(row)
                stored = without_labels(paper) if self._drops_labels else paper
                if json.loads(encode_paper(stored)) == paper_to_record(papers[row]):
                    self.unchanged += 1
                    continue
            same_paper = row
            if row is None and self._how != SYNC:
                same_paper = papers.find(made_id(paper))
                if same_paper is not None and self._is_another(same_paper, paper, is_made=True):
                    same_paper = None
            if same_paper is None and before is not None and (first := before.first(paper)) is not None:
                left_out.merge(paper.paper_id, paper.paper_id, first, before.by, "in the index")
                continue
            if same_paper is not None and self._how == APPEND:
                reason = "the index has this paper with other content, which it keeps"
                left_out.note(KEPT, paper.paper_id, reason)
                self.kept.append(paper.paper_id)
                continue
            if paper.paper_id != each.paper_id and row is None:
                reason = f"the index has another paper of the id {each.paper_id!r}; this one is "
                left_out.note(RENAMED, each.paper_id, f"{reason}{paper.paper_id!r}", paper_id=paper.paper_id)
            self.written += 1
            if row is not None:
                self.replaced.append(row)
            elif same_paper is not None:
                former.add(same_paper)
            if self._how == SYNC:
                self._ids.update((content_id(paper), made_id(paper)))
            yield paper
        rows = {papers.find(paper_id) for paper_id in left_out.deleted}
        deleted = {row: papers[row].title for row in rows - self._seen if row is not None}
        self._seen |= deleted.keys()
        if self._how == SYNC:
            self._find_gone(left_out)
        else:
            self.replaced += former - self._seen
        if self._how != APPEND:
            self.gone |= deleted

    def _placed(self, paper: Paper) -> tuple[Paper, int | None]:
        """Return the paper, under its `second_id` where its own is taken, and the row of that id."""
        find, is_made = self._papers.find, paper.paper_id.startswith(MADE)
        plain = made_id(paper) if is_made else usable_id(str(paper.metadata.get("key") or ""))
        second = second_id(paper, plain) if plain and self._how != SYNC else ""
        if second and paper.paper_id in (plain, second):
            for paper_id in (plain, second):
                row = find(paper_id)
                if row is not None and row not in self._seen and not self._is_another(row, paper, is_made):
                    return dataclasses.replace(paper, paper_id=paper_id), row
            if find(paper.paper_id) is not None:
                paper = dataclasses.replace(paper, paper_id=second)
        return paper, find(paper.paper_id)

    def _is_another(self, row: int, paper: Paper, is_made: bool) -> bool:
        stored, record = self._papers[row], {"title": paper.title, "metadata": paper.metadata}
        if is_made:
            return are_apart(told_apart(stored), told_apart(paper))
        return contradicts(stored, record) and not differs_little(stored, record)

    def _find_gone(self, left_out: RejectedRecords) -> None:
        """Find papers that the corpus lacks: one whose record is broken stays, one of another id there is
        replaced. Many that go are unexpected, and any that may be among the records that were skipped.
        """
        papers = self._papers
        for paper_id in left_out.ids:
            row = papers.find(paper_id)
            if row is not None and row not in self._seen:
                self._seen.add(row)
                self.kept.append(paper_id)
        left = self.written - len(self.replaced)  # papers that replace none so far
        for row in sorted(set(range(len(papers))) - self._seen):
            paper = papers[row]
            if left and not self._ids.isdisjoint((content_id(paper), made_id(paper))):
                self.replaced.append(row)
                left -= 1
            else:
                self.gone[row] = paper.title

        count, total = len(self.gone), len(papers)
        is_few = count <= max(1, total // 10)
        if not count or (is_few and not left_out.nameless):
            return
        some = [f"{title:.60} [{papers.ids[row]}]" for row, title in islice(self.gone.items(), NAMED)]
        named = ", ".join(some) + (f" and {count - NAMED:,} more" if count > NAMED else "")
        missing = f"{count:,} of the {total:,} missing from the corpus ({named})"
        if left_out.nameless:
            missing += f", and records without an id that cannot be used: {left_out.nameless:,}"
        expected = "all papers of the index" if is_few else "at most one paper or a tenth to delete"
        self.unexpected = f"{expected}, found {missing}"
