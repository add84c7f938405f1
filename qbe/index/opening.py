"""Opening, building and updating an index from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from qbe.corpus.records import Reading
from qbe.index.building.build import build
from qbe.index.building.changes import append_papers, delete_papers, sync_papers
from qbe.index.building.compaction import compact
from qbe.index.building.settings import BuildSettings, Execution, Progress, Silent
from qbe.index.building.source import Corpus
from qbe.index.building.writer import Written
from qbe.index.index import Index as ReadableIndex
from qbe.util.parallel import thread_count

T = TypeVar("T")


class Index(ReadableIndex):
    """A `qbe.index.index.Index` whose folder is updated too; what it changes it reads at once.

    >>> with open_index("indexes/sample") as opened:
    ...     opened.compact() is None  # it is one segment
    True
    """

    def append(self, corpus: Corpus, *, reading: Reading | None = None, update: bool = False) -> Written:
        """Add papers that the index lacks, all of them or none, and `refresh`; with ``update`` replace those
        that it has with other content.

        ``corpus`` is a path or ``hf:`` name, several of them, or papers; ``reading`` says how files are read.
        Raises what `qbe.index.building.changes.append_papers` does.
        """
        return self._changed(append_papers, corpus, **self._how(reading), update=update)

    def sync(self, corpus: Corpus, *, reading: Reading | None = None, overwrite: bool = False) -> Written:
        """Make the papers of the index those of a corpus, all at once, and `refresh`: add, replace, delete.

        Unless with ``overwrite``, more than one paper and a tenth of all are not deleted. Raises what
        `qbe.index.building.changes.sync_papers` does.
        """
        return self._changed(sync_papers, corpus, **self._how(reading), confirm=lambda _: overwrite)

    def delete(self, paper_ids: Iterable[str]) -> Written:
        """Delete papers by id, all of them or none, and `refresh`; raises what
        `qbe.index.building.changes.delete_papers` does.
        """
        return self._changed(delete_papers, paper_ids)

    def compact(self) -> Written | None:
        """Make one segment of the index and `refresh`; None where it is one already. Raises what
        `qbe.index.building.compaction.compact` does.
        """
        return self._changed(compact, execution=Execution(self.threads))

    def _changed(self, change: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """What a function that changes the folder returns; the change is seen by now."""
        result = change(self.folder, *arguments, **named)
        self.refresh()
        return result

    def _how(self, reading: Reading | None) -> dict[str, Any]:
        """How papers are read and encoded."""
        return {
            "reading": reading or Reading(),
            "encoder": self._encoder_name,
            "tagger": self._tagger_name,
            "execution": Execution(self.threads),
        }


def open_index(
    folder: str | Path,
    *,
    encoder: str | None = None,
    tagger: str | None = None,
    threads: int | None = None,
) -> Index:
    """Open the index in a folder; parameters and errors are those of `qbe.index.index.Index`.

    Close it at the end, or use it as a context manager.

    >>> with open_index("indexes/sample") as sample:
    ...     len(sample)
    128
    """
    return Index(folder, encoder=encoder, tagger=tagger, threads=threads)


def build_index(
    folder: str | Path,
    corpus: Corpus,
    settings: BuildSettings | None = None,
    *,
    reading: Reading | None = None,
    overwrite: bool = False,
    resume: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Index:
    """Build an index of a corpus in a folder, and open it.

    ``corpus`` is a path (of a file in any of the formats that qbe reads, or a folder) or ``hf:`` name,
    several of them, or an iterable of `qbe.types.Paper`; ``reading`` says how files are read. By default the
    index has Lucene postings and vectors, made by the default encoder in int8. ``threads`` are by default all
    available processors. ``overwrite`` replaces an index, ``resume`` goes on with an interrupted build; of
    papers that only works for a sequence, such as a list. ``progress`` observes the stages. See
    `qbe.index.building.build.build` for how the build goes, what it leaves when interrupted, and the errors
    it raises; TypeError for ``settings`` and ``reading`` that are none.

    >>> from qbe.types import Paper, Sentence
    >>> paper = Paper("1", "A title", (Sentence("We study search."), Sentence("It works.")))
    >>> with build_index("indexes/mine", [paper]) as mine:
    ...     mine.paper("1").title
    'A title'
    """
    if settings is not None and not isinstance(settings, BuildSettings):
        raise TypeError(
            f"expected qbe.BuildSettings as `settings`, found {type(settings).__name__}; make them as in "
            "qbe.BuildSettings(dense=False)"
        )
    if reading is not None and not isinstance(reading, Reading):
        raise TypeError(
            f"expected qbe.Reading as `reading`, found {type(reading).__name__}; make it as in "
            'qbe.Reading(on_error="skip")'
        )
    threads = thread_count(threads)
    build(
        Path(folder),
        corpus,
        settings,
        reading=reading or Reading(),
        overwrite=overwrite,
        resume=resume,
        execution=Execution(threads, progress or Silent()),
    )
    return Index(folder, threads=threads)
