"""Models that ONNX Runtime runs: found, exported, and applied to papers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike

from qbe.errors import MissingDependencyError, ModelError, package_error


@contextlib.contextmanager
def reading(path: str | PathLike[str], expected: str, remedy: str) -> Iterator[None]:
    """Turn any error of the block into a ModelError of one line, a failed import into its own."""
    try:
        yield
    except (ModelError, MissingDependencyError):
        raise
    except ImportError as error:
        raise package_error(error, error.name or "") from error
    except Exception as error:
        is_bare = isinstance(error, LookupError | TypeError | AttributeError) or not str(error)
        text = repr(error) if is_bare else str(error)
        reason = " ".join(line.strip() for line in text.splitlines()[:2])
        raise ModelError(f"{path}: expected {expected}, found: {reason}; {remedy}") from error
