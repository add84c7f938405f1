"""Files of a data set, written apart and then put in place, where none replaces another file unasked."""

from __future__ import annotations

import contextlib
import filecmp
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbe.errors import OutputError, output_error


@contextlib.contextmanager
def placed(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder, whose files are moved to ``folder`` at the end of the block.

    A file that is there already is replaced where it has the same content, or with ``overwrite``; otherwise
    OutputError is raised, and nothing is changed. Also raises OutputError where the folder cannot be written.

    >>> Path("mine").mkdir()
    >>> _ = Path("mine/corpus.jsonl").write_text("my papers")
    >>> with placed(Path("mine")) as written:
    ...     _ = (written / "corpus.jsonl").write_text("other papers")
    Traceback (most recent call last):
    ...
    qbe.errors.OutputError: mine/corpus.jsonl: expected no such file, or the data set's own, ...
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
    """Remove those of the folders that are empty when the block has failed, in their order."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in folders:
                folder.rmdir()
        raise


def _same(path: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(path, other, shallow=False)
