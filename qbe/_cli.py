"""What every command line shares: errors to exit codes, progress, threads."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from qbe.errors import QbeError, UsageError
from qbe.files import output_error

T = TypeVar("T")


def run(program: str, main: Callable[[list[str]], None]) -> None:
    """Run a command's ``main`` and leave the process with the right exit code.

    0 when it returns, 2 for usage errors, 1 for all other expected failures, each with one line on
    standard error; 130 when interrupted. An unexpected exception keeps its traceback: it is a bug.
    """
    # Products of a few query vectors are over before a pool of threads has woken up, and the pool then
    # spins against FAISS's. Read by numpy when it is loaded; results do not depend on it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    logger = logging.getLogger("qbe")
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.setLevel(logging.INFO)
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except QbeError as error:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        # The reader went away (``| head``): quietly, and without a second error at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{program}: {output_error(error.filename, error)}", file=sys.stderr)
        code = 1
    else:
        code = 0
    sys.exit(code)


def progress(items: Iterable[T], description: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Pass items through, with a progress bar when standard error is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from tqdm import tqdm

    yield from tqdm(items, desc=description, unit=f" {unit}", total=total, dynamic_ncols=True)


@contextlib.contextmanager
def counter(description: str, unit: str, total: int) -> Iterator[Callable[[int], object]]:
    """A function to call with the number of items just done; it moves a bar, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=description, unit=f" {unit}", dynamic_ncols=True) as bar:
        yield bar.update


def available_threads() -> int:
    """Processors this process may run on: the affinity mask, which containers set, not the host's count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads(given: int | None) -> int:
    """The value of ``--threads``, or all available ones; raises UsageError below 1."""
    if given is not None and given < 1:
        raise UsageError(f"expected --threads of at least 1, found {given}")
    return given or available_threads()
