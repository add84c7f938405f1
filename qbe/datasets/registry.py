"""Writing a data set: a new one needs a function here, and a name in `qbe.datasets.names`."""

from __future__ import annotations

import contextlib
import filecmp
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbe.datasets import arxiv, citations, csfcube, pools, sample
from qbe.datasets.names import NAMES, TAKEN_BY
from qbe.errors import OutputError, UsageError, output_error
from qbe.util.files import StrPath

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Options of a data set; each takes those that `qbe.datasets.names.TAKEN_BY` says.

    Attributes:
        source: the folder of the release (default: ``$QBE_DATA/NAME``; CSFCube is downloaded).
        raw: write each abstract as one string, without labels.
        corpus: of citations, a corpus in place of the release; of graded-pairs, the papers.
        split_years: of such a corpus, the last year of train, and of dev.
        leave_out: of citations, files of papers: no paper with such a title is a query.
    """

    source: StrPath | None = None
    raw: bool = False
    corpus: str | None = None
    split_years: tuple[int, ...] = ()
    leave_out: tuple[StrPath, ...] = ()

    @property
    def folder(self) -> Path | None:
        return None if self.source is None else Path(self.source)

    def check(self, name: str) -> None:
        """Raise UsageError for options that a data set does not take, or that do not go together."""
        for option, names in TAKEN_BY.items():
            if getattr(self, option) not in (None, False, ()) and name not in names:
                raise UsageError(f"{name} takes no `{option}`, {', '.join(names)} do; leave it out")
        if name == "citations" and self.corpus is not None and self.source is not None:
            raise UsageError(
                "expected the release as `source` or a corpus of your own as `corpus`, found both"
            )
        if self.split_years and self.corpus is None:
            raise UsageError("the splits of a release are given; leave out `split_years`")
        if len(self.split_years) > 2 or list(self.split_years) != sorted(set(self.split_years)):
            raise UsageError(
                "expected as `split_years` the last year of train, and of dev, the later one second, found "
                f"{' '.join(map(str, self.split_years))}"
            )


def write_dataset(
    name: str,
    output: StrPath,
    options: DatasetOptions | None = None,
    *,
    overwrite: bool = False,
    report: Report = lambda _: None,
) -> list[str]:
    """Write a data set to a folder (corpus, topics, pools, qrels, folds) and return lines that summarize it.

    ``report`` is called with one line for each downloaded file. Raises UsageError for an unknown name or
    options that the data set does not take, CorpusError, FileFormatError and DatasetError for a release that
    is missing or broken, OutputError where other files are in the way and ``overwrite`` is not given.
    """
    if name not in NAMES:
        raise UsageError(f"expected a data set `name` of {', '.join(NAMES)}, found {name!r}")
    options = options or DatasetOptions()
    options.check(name)
    folder = Path(output)
    with placed(folder, overwrite=overwrite) as written:
        lines = _write(name, options, written, report)
    return [line.replace(str(written), str(folder)) for line in lines]


def _write(name: str, options: DatasetOptions, output: Path, report: Report) -> list[str]:
    match name:
        case "csfcube":
            source = csfcube.find_release(options.folder, report=report)
            return csfcube.convert(source, output, raw=options.raw)
        case "citations":
            titles = citations.titles_of(map(Path, options.leave_out))
            if options.corpus is None:
                return citations.write_release(options.folder, output, titles)
            return citations.write_own(options.corpus, options.split_years, output, titles)
        case "graded-pairs":
            return arxiv.write_graded_pairs(options.folder, options.corpus, output)
        case "arxiv-cs":
            return arxiv.write(options.folder, output)
        case "sample":
            return [f"sample: {', '.join(sample.copy_sample(output, raw=options.raw))}"]
        case _:
            return pools.write(name, options.folder, output, raw=options.raw)


@contextlib.contextmanager
def placed(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, whose files move to ``folder`` at the end of the block.

    Raises OutputError, and changes nothing, where a file of other content is there, unless with
    ``overwrite``.
    """
    absent = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=".dataset-", dir=folder)
    except OSError as error:
        raise output_error(folder, error) from error
    with _without_empty(absent), temporary as name:
        written = Path(name)
        yield written
        targets = {path: folder / path.relative_to(written) for path in written.rglob("*") if path.is_file()}
        for path, target in targets.items():
            if target.exists() and not overwrite and not _same(path, target):
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


@contextlib.contextmanager
def _without_empty(folders: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in folders:
                folder.rmdir()
        raise


def _same(path: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(path, other, shallow=False)
