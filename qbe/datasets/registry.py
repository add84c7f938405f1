"""Writing a data set: a new one needs a function in WRITERS, and a name in `qbe.datasets`."""

import contextlib
import filecmp
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from qbe.datasets import ARXIV_CS, GRADED_PAIRS, NAMES, TAKEN_BY, arxiv, citations, collections, people
from qbe.datasets.releases import DatasetOptions, Report
from qbe.errors import OutputError, UsageError, output_error
from qbe.util.files import StrPath

WRITERS: dict[str, Callable[[DatasetOptions, Path, Report], list[str]]] = {
    "csfcube": collections.write_csfcube,
    **{name: partial(collections.write_judged, name) for name in collections.RELEASES},
    "citations": citations.write_citations,
    **{name: partial(collections.write_citeomatic, name) for name in collections.CITEOMATIC},
    "cocitations": citations.write_cocitations,
    "blended": arxiv.write_blended,
    GRADED_PAIRS: arxiv.write_graded_pairs,
    ARXIV_CS: arxiv.write_arxiv,
    **people.WRITERS,
    "beir": collections.write_beir,
    "mini": arxiv.write_mini,
}


def write_dataset(
    name: str,
    output: StrPath,
    options: DatasetOptions | None = None,
    *,
    overwrite: bool = False,
    report: Report = lambda _: None,
) -> list[str]:
    """Write a data set to a folder (corpus, topics, pools, qrels, folds) and return lines that summarize it.

    ``irds:NAME`` is a collection of ir_datasets. ``report`` is called with a line for what is downloaded.
    Raises UsageError for an unknown name or options that the data set does not take, CorpusError,
    FileFormatError and DatasetError for a release that is missing or broken, OutputError where other files
    are in the way and ``overwrite`` is not given.
    """
    kind, _, part = name.partition(":")
    if kind not in NAMES or (kind == "irds") != bool(part):
        raise UsageError(f"expected a data set `name` of {', '.join(NAMES)} (irds:NAME), found {name!r}")
    options = options or DatasetOptions()
    for option, names in TAKEN_BY.items():
        if getattr(options, option) not in (None, False, ()) and kind not in names:
            raise UsageError(f"{name} takes no `{option}`, {', '.join(names)} do; leave it out")
    if name == "citations" and options.corpus is not None and options.source is not None:
        raise UsageError("expected the release as `source` or a corpus of your own as `corpus`, found both")
    if options.split_years and options.corpus is None:
        raise UsageError("the splits of a release are given; leave out `split_years`")
    if len(options.split_years) > 2 or list(options.split_years) != sorted(set(options.split_years)):
        raise UsageError(
            "expected as `split_years` the last year of train, and of dev, the later one second, found "
            f"{' '.join(map(str, options.split_years))}"
        )
    folder = Path(output)
    with placed(folder, overwrite=overwrite) as written:
        if part:
            lines = collections.write_irds(part, written, report)
        else:
            lines = WRITERS[name](options, written, report)
    return [line.replace(str(written), str(folder)) for line in lines]


@contextlib.contextmanager
def placed(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, whose files move to ``folder`` at the end of the block.

    Raises OutputError, and changes nothing, where a file of other content is, unless with ``overwrite``.
    """
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    try:
        temporary = tempfile.TemporaryDirectory(prefix=".dataset-", dir=there)
    except OSError as error:
        raise output_error(folder, error) from error
    with temporary as name:
        written = Path(name)
        yield written
        files = (path for path in written.rglob("*") if path.is_file())
        targets = {path: folder / path.relative_to(written) for path in files}
        for path, target in targets.items():
            is_same = target.is_file() and filecmp.cmp(path, target, shallow=False)
            if target.exists() and not (overwrite or is_same):
                raise OutputError(
                    f"{target}: expected no such file, or the data set's own, found another; choose another "
                    "`output`, or replace it with `overwrite`"
                )
        try:
            for path, target in targets.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
        except OSError as error:
            raise output_error(folder, error) from error
