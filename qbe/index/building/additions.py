"""The papers of a corpus that change an index: new ones, and those that it holds with other content."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from itertools import islice

from qbe.corpus.ids import content_id, made_id
from qbe.corpus.leftout import KEPT, LeftOut
from qbe.corpus.record import Splitter, paper_to_record
from qbe.errors import UsageError
from qbe.index.building.source import Source
from qbe.index.labels import without_labels
from qbe.index.papers import encode_paper
from qbe.index.segments.views import PaperStore
from qbe.types import Paper

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
        self.left_out = LeftOut()
        self.written, self.unchanged = 0, 0
        self.replaced: list[int] = []
        self.kept: list[str] = []
        self.gone: dict[int, str] = {}

    @property
    def source(self) -> Source:
        """What is to be written, as the source of a build."""
        return dataclasses.replace(self._source, papers=self._papers_to_write)

    def _papers_to_write(self, split: Splitter, left_out: LeftOut) -> Iterator[Paper]:
        """The papers as a stream; raises UsageError at their end where many others would be deleted and the
        answer is no.
        """
        self.left_out = left_out
        for paper in self._source.papers(split, left_out):
            row = self._papers.find(paper.paper_id)
            if row is not None:
                self._seen.add(row)
                if self._is_same(row, paper):
                    self.unchanged += 1
                    continue
            same_paper = row
            if row is None and self._how != SYNC:  # without an id of its own so far
                same_paper = self._papers.find(made_id(paper))
            if same_paper is not None and self._how == APPEND:
                left_out.note(
                    KEPT, paper.paper_id, "the index has this paper with other content, which it keeps"
                )
                self.kept.append(paper.paper_id)
                continue
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

    def _is_same(self, row: int, paper: Paper) -> bool:
        """Whether the index holds this very paper; the order in its metadata does not count."""
        stored = without_labels(paper) if self._drops_labels else paper
        return bool(json.loads(encode_paper(stored)) == paper_to_record(self._papers[row]))

    def _find_gone(self, left_out: LeftOut) -> None:
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

    def _check_gone(self, left_out: LeftOut) -> None:
        """Ask before more than one paper and a tenth of all is deleted, or one that may be among the records
        that were skipped.
        """
        count, total = len(self.gone), len(self._papers)
        if not count or (count <= max(1, total // 10) and not left_out.nameless):
            return
        named = ", ".join(
            f"{title:.60} [{self._papers.ids[row]}]" for row, title in islice(self.gone.items(), NAMED)
        )
        others = f" and {count - NAMED:,} more" if count > NAMED else ""
        missing = f"{count:,} of the {total:,} papers of the index missing in the corpus ({named}{others})"
        if left_out.nameless:
            missing += f" and {left_out.nameless:,} skipped records, which may be theirs"
        if not self._confirm(f"found {missing}; delete these papers?"):
            raise UsageError(
                f"expected at most one paper or a tenth to delete, found {missing}; nothing was changed: "
                "check the corpus, or delete them with `overwrite`"
            )


def _ids(paper: Paper) -> tuple[str, str]:
    """What tells a paper from others, whatever its own id is: DOI or arXiv id, and title, year and author."""
    return content_id(paper), made_id(paper)
