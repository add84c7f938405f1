"""Adding papers to an index, replacing and deleting them, or all of these to make it equal to a corpus, each
call in one commit.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np

from qbe.corpus.identity import MADE, Seen, are_apart, content_id, made_id, second_id, told_apart, usable_id
from qbe.corpus.records import AS_IT_COMES, Reading, Splitter, paper_to_record
from qbe.corpus.rejected import KEPT, RENAMED, RejectedRecords
from qbe.errors import OutputError, PaperNotFoundError, UsageError
from qbe.index.building.build import build_segment
from qbe.index.building.rejected import add_rejected, check_replaceable, rejected_file
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.building.writer import Written, commit, without, writing
from qbe.index.index import matching_encoder
from qbe.index.names import contradicts, differs_little
from qbe.index.papers import encode_paper, without_labels
from qbe.index.snapshot import Segment, Snapshot, segment_name
from qbe.index.views import PaperStore, combined_manifest, tagger_identity
from qbe.types import Paper

log = logging.getLogger(__name__)


def append_papers(
    folder: str | Path,
    corpus: Corpus,
    *,
    reading: Reading = AS_IT_COMES,
    update: bool = False,
    encoder: str | None = None,
    tagger: str | None = None,
    device: str | None = None,
    execution: Execution | None = None,
) -> Written:
    """Add the papers of a corpus to an index, as a further segment built with the index's settings.

    ``corpus`` is a path or ``hf:`` name, several of them, or papers, ``reading`` as in
    `qbe.index.building.build.build`. Papers that the index has as they are are counted and left alone. Of one
    that it has with other content under the same id the index keeps its own, and the corpus's is listed with
    the records that are left out; with ``update`` the corpus's replaces it, and gets a new row.
    Another paper with a citation key of the index gets another id, as in a build. With ``reading.dedupe``
    papers that repeat one of the index by title or DOI are left out.
    Records that are left out are counted, and added to the index's list
    (`qbe.index.building.rejected.rejected_file`).
    ``encoder`` and ``tagger`` (a name or folder) say where those that the index was built with are now,
    ``device`` (one of `qbe.models.session.DEVICES`) runs the encoder. All papers become visible at once, to
    readers that open the index later; when anything fails the index is unchanged.

    Raises IndexBuildError for another tagger than the index's and where another process writes,
    EncoderMismatchError for another encoder than the index's, and what
    `qbe.index.building.build.build` and `qbe.index.building.writer.writing` do.

    >>> from qbe.index.building.build import build
    >>> _ = build(Path("indexes/longer"), [index.paper("s001")], BuildSettings(dense=False))
    >>> written = append_papers("indexes/longer", [index.paper("s001"), index.paper("s002")])
    >>> written.added, written.unchanged, written.papers
    (1, 1, 2)
    """
    models = {"encoder": encoder, "tagger": tagger, "device": device}
    source, how = open_corpus(corpus, reading), UPDATE if update else APPEND
    with writing(folder) as snapshot:
        return _change(snapshot, source, how, models, execution)


def sync_papers(
    folder: str | Path,
    corpus: Corpus,
    *,
    reading: Reading = AS_IT_COMES,
    confirm: Confirm = lambda question: False,  # noqa: ARG005
    encoder: str | None = None,
    tagger: str | None = None,
    device: str | None = None,
    execution: Execution | None = None,
) -> Written:
    """Make the papers of an index those of a corpus, in one commit: those that it lacks are added, those of
    other content replaced, those that the corpus lacks deleted; all others are left alone.

    A paper whose record in the corpus was skipped stays as it is. Where no ``reading`` is given, files are
    read as they were when the index was built. ``confirm`` is called with a question before more than one
    paper and a tenth of all are deleted, or any while skipped records do not tell their ids. Other parameters
    and errors are those of `append_papers`; raises UsageError where the answer is no, and for a reading with
    a ``limit``.

    >>> from qbe.index.building.build import build
    >>> papers = [index.paper(f"s00{number}") for number in (1, 2, 3)]
    >>> _ = build(Path("indexes/same"), papers[:2], BuildSettings(dense=False))
    >>> written = sync_papers("indexes/same", papers[1:])
    >>> written.added, written.deleted, written.unchanged, list(written.deleted_titles)
    (1, 1, 1, ['s001'])
    """
    if reading.limit is not None:
        raise UsageError("`limit` is of no use with `sync`, which would delete the papers beyond it; drop it")
    models = {"encoder": encoder, "tagger": tagger, "device": device}
    with writing(folder) as snapshot:
        if reading == AS_IT_COMES:
            recorded = snapshot.segments[0].manifest.corpus.get("reading", {})
            reading = Reading(**{**recorded, "limit": None})
        source = open_corpus(corpus, reading)
        return _change(snapshot, source, SYNC, models, execution, confirm)


def _change(
    snapshot: Snapshot,
    source: Source,
    how: str,
    models: Mapping[str, str | None],
    execution: Execution | None,
    confirm: Confirm = lambda question: False,  # noqa: ARG005
) -> Written:
    """Write what a source changes of an index, if anything; ``how`` is that of `Additions`."""
    folder, manifest = snapshot.folder, combined_manifest(snapshot)
    check_replaceable(folder)
    changed = {name: value for name, value in models.items() if value is not None}
    settings = BuildSettings.read(manifest.settings, **changed)
    if manifest.dense is not None:
        matching_encoder(folder, manifest, settings.encoder)
    papers = PaperStore(snapshot.segments, predictions=False)
    additions = Additions(source, papers, how, confirm, settings.dense and settings.facets == "predicted")
    name = segment_name(snapshot.generation + 1)
    segment = build_segment(
        additions.source, folder / name, settings, execution or Execution(), folder, tagger_identity(manifest)
    )
    dead = np.array([*additions.replaced, *additions.gone], np.int64)
    segments, generation = [each.segment for each in snapshot.segments], snapshot.generation
    if segment is not None or len(dead):
        segments = without(snapshot, dead)
        if segment is not None:
            segments.append(Segment(name, segment.digest))
        generation = commit(snapshot, segments)
    try:
        if how == SYNC:  # the records of another corpus, whose papers are gone
            rejected_file(folder).unlink(missing_ok=True)
        add_rejected(rejected_file(folder / name), rejected_file(folder))
    except (OSError, OutputError) as error:  # the papers are there all the same
        log.warning("%s: records were skipped, but the list of them could not be written", error)
    return Written(
        added=additions.written - len(additions.replaced),
        replaced=len(additions.replaced),
        deleted=len(additions.gone),
        papers=len(papers) + additions.written - len(dead),
        segments=len(segments),
        generation=generation,
        left_out=additions.left_out.counts(),
        unchanged=additions.unchanged,
        kept=tuple(additions.kept),
        deleted_titles={papers.ids[row]: title for row, title in additions.gone.items()},
    )


def delete_papers(folder: str | Path, paper_ids: Iterable[str]) -> Written:
    """Delete papers from an index: readers that open it later do not find them.

    Their text and vectors stay on the disk, and count in BM25's statistics, until
    `qbe.index.building.compaction`, or until their segment has no other paper. Raises PaperNotFoundError
    where the index lacks one of the ids, and UsageError for no ids and for all the index's (then nothing is
    deleted), TypeError for anything but an iterable of str, and what `qbe.index.building.writer.writing`
    does.

    >>> import shutil
    >>> folder = shutil.copytree(index.folder, "indexes/shorter")
    >>> written = delete_papers(folder, ["s001", "s002"])
    >>> written.deleted, written.papers, written.segments
    (2, 126, 1)
    """
    if isinstance(paper_ids, str):
        raise TypeError("expected `paper_ids` as an iterable of str, found one str; put it into a list")
    if not isinstance(paper_ids, Iterable):
        raise TypeError(f"expected `paper_ids` as an iterable of str, found {type(paper_ids).__name__}")
    paper_ids = list(paper_ids)
    for paper_id in paper_ids:
        if not isinstance(paper_id, str):
            raise TypeError(f"expected `paper_ids` of str, found {type(paper_id).__name__} in them")
    with writing(folder) as snapshot:
        folder, papers = snapshot.folder, PaperStore(snapshot.segments)
        rows = {paper_id: papers.find(paper_id) for paper_id in paper_ids}
        unknown = [paper_id for paper_id, row in rows.items() if row is None]
        if unknown:
            raise PaperNotFoundError(
                f"expected ids of papers of {folder}, found {len(unknown)} of {len(rows)} that it lacks, "
                f"such as {unknown[0]!r}; nothing was deleted: check them"
            )
        if not 0 < len(rows) < len(papers):
            possible = f"1 to {len(papers) - 1} of the {len(papers)} papers"
            if len(papers) == 1:
                possible = "papers beside the only one"
            raise UsageError(
                f"expected ids of {possible} of {folder}, found "
                f"{len(rows)}; an index keeps at least one paper: remove the folder to be rid of all"
            )
        dead = np.array([row for row in rows.values() if row is not None], np.int64)
        segments = without(snapshot, dead)
        generation = commit(snapshot, segments)
        return Written(0, 0, len(dead), len(papers) - len(dead), len(segments), generation)


APPEND, UPDATE, SYNC = "append", "update", "sync"
"""What becomes of a corpus's papers that an index holds with other content, and of papers that the corpus
lacks: the index keeps both; the first are replaced; the first are replaced and the second deleted.
"""

NAMED = 3
"""How many papers a question or an error names."""

Confirm = Callable[[str], bool]
"""Answers a question."""


class Additions:
    """The papers of a source that are new to an index or replace some of it .

    Once they are read, ``replaced`` are the rows of papers that are replaced, ``unchanged`` counts papers
    that the index has as they are, and ``kept`` are the ids of those that stay though the corpus has other
    content for them, or a record that cannot be used. ``gone`` are the papers to be deleted, their titles by
    row: those that the corpus says are deleted and, with SYNC, those that it lacks.
    """

    def __init__(
        self, source: Source, papers: PaperStore, how: str, confirm: Confirm, drops_labels: bool
    ) -> None:
        """``papers`` are the index's without predictions, ``drops_labels`` says that all its facets are
        predicted, and ``confirm`` is called before many papers are deleted.
        """
        self._source, self._papers, self._how, self._confirm = source, papers, how, confirm
        self._drops_labels = drops_labels
        self._seen: set[int] = set()
        self._former: set[int] = set()
        self._ids: set[str] = set()
        self.left_out = RejectedRecords()
        self.written, self.unchanged = 0, 0
        self.replaced: list[int] = []
        self.kept: list[str] = []
        self.gone: dict[int, str] = {}

    @property
    def source(self) -> Source:
        """What is to be written, as the source of a build."""
        return dataclasses.replace(self._source, papers=self._papers_to_write)

    def _papers_to_write(self, split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
        """The papers as a stream; raises UsageError at their end where many others would be deleted and the
        answer is no.
        """
        self.left_out = left_out
        before = self._papers_before()
        for each in self._source.papers(split, left_out):
            paper, row = self._placed(each)
            if row is not None:
                self._seen.add(row)
                if self._is_same(row, paper):
                    self.unchanged += 1
                    continue
            same_paper = row
            if row is None and self._how != SYNC:  # without an id of its own so far
                same_paper = self._papers.find(made_id(paper))
                if same_paper is not None and self._is_another(same_paper, paper, is_made=True):
                    same_paper = None
            if same_paper is None and before is not None and (first := before.first(paper)) is not None:
                left_out.merge(paper.paper_id, paper.paper_id, first, before.by, "in the index")
                continue
            if same_paper is not None and self._how == APPEND:
                left_out.note(
                    KEPT, paper.paper_id, "the index has this paper with other content, which it keeps"
                )
                self.kept.append(paper.paper_id)
                continue
            if paper.paper_id != each.paper_id and row is None:
                message = (
                    f"the index has another paper of the id {each.paper_id!r}; this one is {paper.paper_id!r}"
                )
                left_out.note(RENAMED, each.paper_id, message)
            self.written += 1
            if row is not None:
                self.replaced.append(row)
            elif same_paper is not None:
                self._former.add(same_paper)
            if self._how == SYNC:
                self._ids.update(_ids(paper))
            yield paper
        rows = {self._papers.find(paper_id) for paper_id in left_out.deleted}
        deleted = {row: self._papers[row].title for row in rows - self._seen if row is not None}
        self._seen |= deleted.keys()
        if self._how == SYNC:
            self._find_gone(left_out)
            self._check_gone(left_out)
        else:
            self.replaced += self._former - self._seen
        if self._how != APPEND:
            self.gone |= deleted

    def _papers_before(self) -> Seen | None:
        """The papers of the index where those of the source are to be compared with them by title or DOI."""
        by = self._source.origin.reading.get("dedupe")
        if by is None or self._how == SYNC:
            return None
        seen = Seen(by)
        for _, paper_id, title, metadata in self._papers.read_headings():
            seen.add(Paper(paper_id, title, (), metadata=metadata))
        return seen

    def _placed(self, paper: Paper) -> tuple[Paper, int | None]:
        """The paper under the id that it would have in a build behind the index's papers, and its row in the
        index, if any: where its key, or the id made from its content, is another paper's, it has a
        `second_id`.
        """
        is_made, key = paper.paper_id.startswith(MADE), paper.metadata.get("key")
        plain = made_id(paper) if is_made else usable_id(str(key or ""))
        second = second_id(paper, plain) if plain and self._how != SYNC else ""
        if not second or paper.paper_id not in (plain, second):
            return paper, self._papers.find(paper.paper_id)
        for paper_id in (plain, second):
            row = self._papers.find(paper_id)
            if row is not None and row not in self._seen and not self._is_another(row, paper, is_made):
                return dataclasses.replace(paper, paper_id=paper_id), row
        if self._papers.find(paper.paper_id) is not None:
            paper = dataclasses.replace(paper, paper_id=second)
        return paper, self._papers.find(paper.paper_id)

    def _is_another(self, row: int, paper: Paper, is_made: bool) -> bool:
        """Whether a paper is not the one of a row, which has its key or the id made from its content."""
        stored, record = self._papers[row], {"title": paper.title, "metadata": paper.metadata}
        if is_made:
            return are_apart(told_apart(stored), told_apart(paper))
        return contradicts(stored, record) and not differs_little(stored, record)

    def _is_same(self, row: int, paper: Paper) -> bool:
        """Whether the index holds this very paper; the order in its metadata does not count."""
        stored = without_labels(paper) if self._drops_labels else paper
        return bool(json.loads(encode_paper(stored)) == paper_to_record(self._papers[row]))

    def _find_gone(self, left_out: RejectedRecords) -> None:
        """Find the papers that the corpus lacks; one whose record there is broken stays, and one that has
        another id there is replaced.
        """
        for paper_id in left_out.ids:
            row = self._papers.find(paper_id)
            if row is not None and row not in self._seen:
                self._seen.add(row)
                self.kept.append(paper_id)
        left = self.written - len(self.replaced)  # papers that replace none so far
        for row in self._papers.live.tolist():
            if row not in self._seen:
                paper = self._papers[row]
                if left and not self._ids.isdisjoint(_ids(paper)):
                    self.replaced.append(row)
                    left -= 1
                else:
                    self.gone[row] = paper.title

    def _check_gone(self, left_out: RejectedRecords) -> None:
        """Ask before more than one paper and a tenth of all is deleted, or one that may be among the records
        that were skipped.
        """
        count, total = len(self.gone), len(self._papers)
        is_few = count <= max(1, total // 10)
        if not count or (is_few and not left_out.nameless):
            return
        named = ", ".join(
            f"{title:.60} [{self._papers.ids[row]}]" for row, title in islice(self.gone.items(), NAMED)
        )
        others = f" and {count - NAMED:,} more" if count > NAMED else ""
        missing = f"{count:,} of the {total:,} papers of the index missing in the corpus ({named}{others})"
        if left_out.nameless:
            missing += f" and {left_out.nameless:,} skipped records, which may be theirs"
        if not self._confirm(f"found {missing}; delete these papers?"):
            expected = "no skipped records" if is_few else "at most one paper or a tenth to delete"
            raise UsageError(
                f"expected {expected}, found {missing}; nothing was changed: "
                "check the corpus, or delete them with `overwrite`"
            )


def _ids(paper: Paper) -> tuple[str, str]:
    """What tells a paper from others, whatever its own id is: DOI or arXiv id, and title, year and author."""
    return content_id(paper), made_id(paper)
