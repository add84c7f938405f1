"""The table of data sets: a new one needs a writer here, and a name in `qbe.datasets.names`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.datasets import citations, citeomatic, corpora, csfcube, embedded, graded, whole
from qbe.datasets.aspire import RELISH, TRECCOVID
from qbe.datasets.citing import titles_of
from qbe.datasets.names import (
    CITEOMATIC,
    CORPORA,
    GRADED_PAIRS,
    NAMES,
    OF_CITATIONS,
    WITHOUT_RAW,
    WITHOUT_SOURCE,
)
from qbe.datasets.placing import placed
from qbe.datasets.release import find_release
from qbe.datasets.scidocs import SCIDOCS
from qbe.errors import UsageError
from qbe.files import StrPath

_TAKEN_BY: Mapping[str, tuple[str, ...]] = {
    "corpus": (*OF_CITATIONS, GRADED_PAIRS),
    "split_years": OF_CITATIONS,
    "leave_out": OF_CITATIONS,
}
"""Data sets that take an argument which most do not."""

Report = Callable[[str], None]


class Request(NamedTuple):
    """What is asked for: the arguments of `write_dataset`, checked; ``output`` is a temporary folder."""

    output: Path
    source: Path | None
    raw: bool
    limit: int | None
    corpus: str | None
    split_years: tuple[int, ...]
    leave_out: tuple[Path, ...]
    report: Report


Writer = Callable[[Request], list[str]]
"""Writes a data set; returns what `write_dataset` does."""


class Dataset(NamedTuple):
    """A data set that can be written.

    Attributes:
        description: one line for the help.
        write: writes it.
        released: whether it is read from the folder of a release; otherwise it is part of the package.
        has_sentences: whether its abstracts come as lists of sentences, so that ``raw`` changes the corpus.
    """

    description: str
    write: Writer
    released: bool = True
    has_sentences: bool = True


def write_dataset(
    name: str,
    output: StrPath,
    *,
    source: StrPath | None = None,
    raw: bool = False,
    limit: int | None = None,
    corpus: str | None = None,
    split_years: Sequence[int] = (),
    leave_out: Sequence[StrPath] = (),
    overwrite: bool = False,
    report: Report = lambda _: None,
) -> list[str]:
    """Write a data set to a folder: corpus, topics, pools, qrels and, where it has them, folds.

    Args:
        name: a key of DATASETS.
        output: the folder, which is created; files appear in it together.
        source: the folder of the release; by default the data set is looked up in ``$QBE_DATA/NAME``, and
            CSFCube is downloaded where that is absent.
        raw: whether the corpus has each abstract as one string, without labels.
        limit: of a corpus without queries, how many papers are written; None: all.
        corpus: of citeomatic, which collection; of citations, a corpus of one's own in place of the release;
            of graded-pairs, what holds their papers.
        split_years: of a corpus of one's own the last year of train, and of dev; none: see
            `qbe.datasets.citations.write_own`.
        leave_out: of citations and citeomatic, files of papers: no paper with such a title is a query.
        overwrite: whether files of another content are replaced.
        report: called with one line for each downloaded file, or with what is to be expected.

    Returns lines of text that summarize what was written. Raises UsageError for an unknown name or an
    argument that the data set does not take, CorpusError, FileFormatError and DatasetError for a release
    that is missing or broken, OutputError when the folder cannot be written, or has files of these names that
    are others.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (summary,) = write_dataset("sample", folder)
    >>> summary[:40]
    'sample: corpus.jsonl, topics.tsv, pools.'
    """
    if name not in DATASETS:
        raise UsageError(f"expected a data set `name` of {', '.join(DATASETS)}, found {name!r}")
    dataset = DATASETS[name]
    if source is not None and not dataset.released:
        raise UsageError(f"{name} is part of the package; leave out `source`")
    if limit is not None and name not in CORPORA:
        raise UsageError(f"{name} is a test collection, which is written whole; leave out `limit`")
    if raw and not dataset.has_sentences:
        raise UsageError(f"the abstracts of {name} are not split into sentences; leave out `raw`")
    _check_citations(name, source, corpus, split_years, leave_out)
    folder = Path(output)
    with placed(folder, overwrite=overwrite) as written:
        request = Request(
            written,
            None if source is None else Path(source),
            raw,
            limit,
            corpus,
            tuple(split_years),
            tuple(map(Path, leave_out)),
            report,
        )
        lines = dataset.write(request)
    return [line.replace(str(written), str(folder)) for line in lines]


def _check_citations(
    name: str,
    source: StrPath | None,
    corpus: str | None,
    split_years: Sequence[int],
    leave_out: Sequence[StrPath],
) -> None:
    """Raise UsageError for arguments of citations and citeomatic that do not fit, or are for others."""
    given = {"corpus": corpus, "split_years": split_years, "leave_out": leave_out}
    for parameter, value in given.items():
        if value and name not in _TAKEN_BY[parameter]:
            raise UsageError(f"{name} is no collection of citations; leave out `{parameter}`")
    if name == "citeomatic" and corpus not in CITEOMATIC:
        raise UsageError(f"expected `corpus` of {', '.join(CITEOMATIC)}, found {corpus or 'none'}")
    if name == "citations" and corpus is not None and source is not None:
        raise UsageError("expected the release as `source` or a corpus of your own as `corpus`, found both")
    if split_years and (name == "citeomatic" or corpus is None):
        raise UsageError("the splits of a release are given; leave out `split_years`")
    if len(split_years) > 2 or list(split_years) != sorted(set(split_years)):
        raise UsageError(
            "expected as `split_years` the last year of train, and of dev, the later one second, found "
            f"{' '.join(map(str, split_years))}"
        )


def _write_csfcube(request: Request) -> list[str]:
    release = find_release(request.source, report=request.report)
    return csfcube.describe(csfcube.convert(release, request.output, raw=request.raw), release)


def _write_whole(collection: whole.Collection, request: Request) -> list[str]:
    release = whole.find_source(collection, request.source)
    papers, splits = collection.read(release)
    counts = whole.convert(collection.name, papers, splits, request.output, raw=request.raw)
    return whole.describe(collection.name, papers, counts)


def _write_citations(request: Request) -> list[str]:
    titles = titles_of(request.leave_out)
    if request.corpus is None:
        return citations.write_release(request.source, request.output, titles)
    return citations.write_own(request.corpus, request.split_years, request.output, titles)


def _write_citeomatic(request: Request) -> list[str]:
    titles = titles_of(request.leave_out)
    return citeomatic.write(request.corpus or "", request.source, request.output, titles, request.report)


def _write_corpus(corpus: corpora.Source, request: Request) -> list[str]:
    return corpora.write_corpus(corpus, request.source, request.output, request.limit, request.report)


def _write_sample(request: Request) -> list[str]:
    return [f"sample: {', '.join(embedded.copy_sample(request.output, raw=request.raw))}"]


_WRITERS: Mapping[str, Writer] = {
    "csfcube": _write_csfcube,
    "relish": functools.partial(_write_whole, RELISH),
    "treccovid": functools.partial(_write_whole, TRECCOVID),
    "scidocs": functools.partial(_write_whole, SCIDOCS),
    "citations": _write_citations,
    "citeomatic": _write_citeomatic,
    GRADED_PAIRS: lambda request: graded.write(request.source, request.corpus, request.output),
    "arxiv-cs": functools.partial(_write_corpus, corpora.ARXIV_CS),
    "acl-anthology": functools.partial(_write_corpus, corpora.ACL_ANTHOLOGY),
    "sample": _write_sample,
}

DATASETS: Mapping[str, Dataset] = {
    name: Dataset(description, _WRITERS[name], name not in WITHOUT_SOURCE, name not in WITHOUT_RAW)
    for name, description in NAMES.items()
}
"""Data sets by name."""
