"""Opening and building an index from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qbe.index.index import Index
from qbe.parallel import thread_count

if TYPE_CHECKING:
    from qbe.corpus.reading import Reading
    from qbe.index.building.settings import BuildSettings, Progress
    from qbe.index.building.source import Corpus


_opener: Callable[..., Index] = Index


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
    return _opener(folder, encoder=encoder, tagger=tagger, threads=threads)


@contextmanager
def opened_by(opener: Callable[..., Index]) -> Iterator[None]:
    """While the block runs, `open_index` opens indexes by another function of the same parameters."""
    global _opener
    before, _opener = _opener, opener
    try:
        yield
    finally:
        _opener = before


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
    from qbe.corpus.reading import Reading
    from qbe.index.building.build import build
    from qbe.index.building.settings import BuildSettings, Execution

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
    execution = Execution(threads) if progress is None else Execution(threads, progress)
    build(
        Path(folder),
        corpus,
        settings,
        reading=reading or Reading(),
        overwrite=overwrite,
        resume=resume,
        execution=execution,
    )
    return Index(folder, threads=threads)
