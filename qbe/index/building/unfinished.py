"""The state of an unfinished build: its inputs, and the results of its finished stages."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from qbe.errors import IndexBuildError
from qbe.files import sync_tree, write_text
from qbe.resume import Unfinished

log = logging.getLogger(__name__)

STATE = "build.json"

State = dict[str, Any]
"""``inputs`` (settings, sources, encoder), ``counts``, ``tagger``, and ``lucene`` once it is done."""


def _unfinished(staging: Path) -> Unfinished:
    return Unfinished(staging, STATE, "build", "the corpus and settings", IndexBuildError)


def save_state(staging: Path, state: State) -> None:
    """Flush the files of a finished stage to the disk, then write the state. Raises OSError or OutputError.

    >>> folder = Path(".stopped.building")
    >>> folder.mkdir()
    >>> save_state(folder, {"inputs": {"encoder": None}, "counts": {"papers": 2}})
    >>> read_state(folder, {"encoder": None})["counts"]
    {'papers': 2}
    """
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


def read_state(staging: Path, inputs: dict[str, Any]) -> State | None:
    """The state of an unfinished build of the same inputs; None where no stage was finished.

    Removes partially written files. Raises IndexBuildError where the inputs differ.

    >>> read_state(Path(".absent.building"), {"encoder": None}) is None
    True
    """
    unfinished = _unfinished(staging)
    state = unfinished.read_state()
    if state is None:
        return None
    unfinished.check_inputs(state["inputs"], inputs)
    unfinished.remove_partial_files()
    log.info("going on with the unfinished build in %s", staging)
    return state


def discard_stale(staging: Path, overwrite: bool, resume: bool) -> None:
    """Remove an unfinished build that is not to be resumed.

    Raises IndexBuildError where it holds finished stages and is not to be overwritten either.

    >>> folder = Path(".stale.building")
    >>> folder.mkdir()
    >>> save_state(folder, {"inputs": {}})
    >>> discard_stale(folder, overwrite=True, resume=False)
    >>> folder.exists()
    False
    """
    if not staging.exists() or resume:
        return
    if (staging / STATE).exists() and not overwrite:
        raise _unfinished(staging).in_the_way()
    shutil.rmtree(staging)
