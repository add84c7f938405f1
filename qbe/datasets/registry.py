"""The table of data sets: a new one needs a writer here, and a name in `qbe.datasets.names`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from qbe.datasets import corpora, csfcube, embedded, whole
from qbe.datasets.aspire import RELISH, TRECCOVID
from qbe.datasets.names import CORPORA, NAMES, WITHOUT_RAW, WITHOUT_SOURCE
from qbe.datasets.placing import placed
from qbe.datasets.release import find_release
from qbe.datasets.scidocs import SCIDOCS
from qbe.errors import UsageError
from qbe.files import StrPath

Report = Callable[[str], None]

Writer = Callable[[Path, Path | None, bool, int | None, Report], list[str]]
"""Takes ``output``, ``source``, ``raw``, ``limit``, ``report``; returns what `write_dataset` does."""


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
    path = None if source is None else Path(source)
    folder = Path(output)
    with placed(folder, overwrite=overwrite) as written:
        lines = dataset.write(written, path, raw, limit, report)
    return [line.replace(str(written), str(folder)) for line in lines]


def _write_csfcube(
    output: Path, source: Path | None, raw: bool, limit: int | None, report: Report
) -> list[str]:
    del limit  # a test collection is written whole
    release = find_release(source, report=report)
    return csfcube.describe(csfcube.convert(release, output, raw=raw), release)


def _write_whole(
    collection: whole.Collection,
    output: Path,
    source: Path | None,
    raw: bool,
    limit: int | None,
    report: Report,
) -> list[str]:
    del limit, report  # written whole, and nothing is downloaded
    release = whole.find_source(collection, source)
    papers, splits = collection.read(release)
    counts = whole.convert(collection.name, papers, splits, output, raw=raw)
    return whole.describe(collection.name, papers, counts)


def _write_corpus(
    corpus: corpora.Source,
    output: Path,
    source: Path | None,
    raw: bool,
    limit: int | None,
    report: Report,
) -> list[str]:
    del raw  # abstracts are written as they are
    return corpora.write_corpus(corpus, source, output, limit, report)


def _write_sample(
    output: Path, source: Path | None, raw: bool, limit: int | None, report: Report
) -> list[str]:
    del source, limit, report
    return [f"sample: {', '.join(embedded.copy_sample(output, raw=raw))}"]


_WRITERS: Mapping[str, Writer] = {
    "csfcube": _write_csfcube,
    "relish": functools.partial(_write_whole, RELISH),
    "treccovid": functools.partial(_write_whole, TRECCOVID),
    "scidocs": functools.partial(_write_whole, SCIDOCS),
    "arxiv-cs": functools.partial(_write_corpus, corpora.ARXIV_CS),
    "acl-anthology": functools.partial(_write_corpus, corpora.ACL_ANTHOLOGY),
    "sample": _write_sample,
}

DATASETS: Mapping[str, Dataset] = {
    name: Dataset(description, _WRITERS[name], name not in WITHOUT_SOURCE, name not in WITHOUT_RAW)
    for name, description in NAMES.items()
}
"""Data sets by name."""
