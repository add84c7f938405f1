"""The state of an unfinished build: its inputs, and what its finished stages found."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from qbe.errors import IndexBuildError
from qbe.files import sync_tree, write_text

log = logging.getLogger(__name__)

STATE = "build.json"

State = dict[str, Any]
"""``inputs`` (settings, sources, encoder), ``counts``, ``tagger``, and ``lucene`` once it is done."""


def save_state(staging: Path, state: State) -> None:
    """Record a finished stage, once its files are on the disk."""
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


def read_state(staging: Path, inputs: dict[str, Any]) -> State | None:
    """The state of an unfinished build of the same inputs; None where no stage was finished.

    Raises IndexBuildError where the inputs are others.
    """
    try:
        state: State = json.loads((staging / STATE).read_text())
    except (OSError, ValueError):
        return None
    if state["inputs"] != inputs:
        changed = ", ".join(key for key in inputs if state["inputs"].get(key) != inputs[key])
        raise IndexBuildError(
            f"expected the corpus and settings of the unfinished build in {staging}, found other {changed}; "
            "repeat the command as it was, or discard that build with --overwrite alone"
        )
    for partial in staging.glob(".*.partial"):  # a file that was being written when the build was killed
        partial.unlink()
    log.info("going on with the unfinished build in %s", staging)
    return state


def discard_stale(staging: Path, overwrite: bool, resume: bool) -> None:
    """Remove an unfinished build that is not to be resumed.

    Raises IndexBuildError where it holds finished stages and is not to be overwritten either.
    """
    if not staging.exists() or resume:
        return
    if (staging / STATE).exists() and not overwrite:
        raise IndexBuildError(
            f"{staging} holds an unfinished build of this index; continue it with --resume, or discard it "
            "with --overwrite"
        )
    shutil.rmtree(staging)


def describe_sources(corpus: tuple[str, ...]) -> list[list[Any]]:
    """Name, size and time of change of each corpus file, to notice that one changed between two tries."""
    facts: list[list[Any]] = []
    for source in corpus:
        path = Path(source)
        if path.is_file():
            status = path.stat()
            facts.append([source, status.st_size, status.st_mtime_ns])
        else:
            facts.append([source])
    return facts
