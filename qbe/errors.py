"""Every error qbe raises on purpose.

A message is one line that says what was expected, what was found, and what to do.
"""

from __future__ import annotations


class QbeError(Exception):
    """Base of all errors; ``exit_code`` is what a command line ends with."""

    exit_code = 1


class UsageError(QbeError):
    """The command or call was put wrongly: options that exclude each other, a value out of range."""

    exit_code = 2


class CorpusError(QbeError):
    """A corpus that cannot be read: broken JSON, missing fields, duplicate ids, wrong encoding."""


class FileFormatError(QbeError):
    """A run, qrels, topics, pools or folds file that does not follow its format."""


class PaperNotFoundError(QbeError):
    """A paper id that the index does not hold."""


class FacetNotFoundError(QbeError):
    """A facet asked of a paper none of whose sentences carry it."""


class IndexFormatError(QbeError):
    """A folder that is no index, or one that is damaged or of another format version."""


class IndexBuildError(QbeError):
    """An index that cannot be built: the target exists, another build holds it or is unfinished."""


class EncoderMismatchError(QbeError):
    """An index built with another encoder than the one asked for."""


class ModelError(QbeError):
    """A model that cannot be found, verified, exported or loaded."""


class JavaError(QbeError):
    """No Java 21 or later, or a Java virtual machine that does not start."""


class DatasetError(QbeError):
    """A data set that cannot be found, downloaded or verified."""


class OutputError(QbeError):
    """An output that cannot be written: read-only folder, full disk."""


class RunError(QbeError):
    """A run that cannot be written: an unfinished one is in the way, or another process writes it."""


class MissingDependencyError(QbeError):
    """An optional package that is not installed; the message gives the pip line."""
