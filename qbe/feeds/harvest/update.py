"""An index brought up to date with a harvested file, in one commit."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from qbe.corpus.records import Splitter, parse_paper
from qbe.corpus.rejected import RejectedRecords
from qbe.errors import CorpusError, IndexFormatError
from qbe.feeds.harvest.harvest import STATE, beside, changed_records, harvest_lock, read_state
from qbe.index.building.changes import append_papers
from qbe.index.building.settings import Execution
from qbe.index.building.source import Origin, Source
from qbe.index.building.writer import Written
from qbe.types import Paper
from qbe.util.files import StrPath


def update_index(harvested: StrPath, folder: StrPath, execution: Execution | None = None) -> Written:
    """Add the papers of a harvested file that an index lacks, replace those of other content, and delete
    those that the repository deleted; other papers of the index stay.

    Compared are the papers that changed since this index was updated from this file, all of them the first
    time. When the update fails or is interrupted the index is unchanged, and the next one does it. Raises
    CorpusError for a file that was not harvested, IndexFormatError where there is no index, and what
    `qbe.index.building.changes.append_papers` does.
    """
    harvested, path = Path(harvested), os.path.realpath(folder)
    with harvest_lock(harvested):
        state = read_state(harvested)
        if state is None or not harvested.exists():
            raise CorpusError(
                f"expected {harvested} and {beside(harvested, STATE).name}, found no harvest; harvest first"
            )
        if not Path(path).is_dir():
            raise IndexFormatError(
                f"expected an index at {folder}, found none; build it once: qbe index --corpus {harvested} "
                f"--output {folder}"
            )
        if state.index != path:
            state.pending = None

        def papers(split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
            left_out.deleted = frozenset(state.deleted)
            for where, record in changed_records(harvested, state):
                yield parse_paper(record, where, split)

        origin = Origin((str(harvested),), [[str(harvested), uuid.uuid4().hex]], sys.maxsize)
        written = append_papers(path, Source(papers, origin), update=True, execution=execution)
        state.index, state.pending = path, set()
        state.write(beside(harvested, STATE))
    return written
