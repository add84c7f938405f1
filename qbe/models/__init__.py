"""Models that ONNX Runtime runs: found, exported, and applied to papers."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path

from qbe.errors import MissingDependencyError, ModelError, package_error
from qbe.util.files import make_once

log = logging.getLogger(__name__)
# numpy reads the headers of arrays by `ast`, which in CPython 3.11 fails now and then in several threads at a
# time (https://github.com/python/cpython/issues/106905)
HEADERS = threading.Lock()


def made_once(path: Path, what: str, make: Callable[[], object], lock: Path | None = None) -> Path:
    """Return a file or folder of the cache, which one process makes, whole, on first use."""

    def told() -> None:
        log.info("%s, once, into %s ...", what, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        make()

    waits = "another process is %s: waiting for it ..."
    make_once(lock or path, path.exists, told, lambda: log.info(waits, what))
    return path


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
