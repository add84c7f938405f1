"""Building an index: stage by stage beside its final place, resumable, put in place in one step."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from qbe import _jvm
from qbe.corpus import read_corpus
from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, IndexFormatError, OutputError
from qbe.files import lock, output_error, publish_directory, sync_tree, write_text
from qbe.index.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    Manifest,
    describe_files,
    digest,
    read_manifest,
    write_manifest,
)
from qbe.index.neighbours import write_neighbours
from qbe.index.papers import RECORDS, PaperStore, write_papers
from qbe.index.postings import write_postings
from qbe.index.vectors import SHARDS, WHOLE, read_vectors, write_vectors
from qbe.models.encoder_files import resolve_encoder
from qbe.models.registry import DEFAULT_ENCODER
from qbe.text.split import split_sentences
from qbe.types import Paper

log = logging.getLogger(__name__)

STATE = "build.json"
"""In an unfinished build: its inputs, and what its finished stages found."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What is built from which corpus; a resumed build must have the same settings, threads aside."""

    corpus: tuple[str, ...]
    bm25: bool = True
    dense: bool = True
    encoder: str = DEFAULT_ENCODER
    precision: str = "int8"
    positions: bool = False
    docvectors: bool = False
    threads: int = 1


class Progress(Protocol):
    """How a build tells of its progress; the command line shows bars, a library stays silent."""

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Pass the corpus through while it is read."""

    def encoding(self, total: int) -> contextlib.AbstractContextManager[Callable[[int], Any]]:
        """A context that gives a function to call with the number of papers just encoded."""

    def stage(self, name: str) -> None:
        """A stage without steps begins."""


class Silent:
    """Progress that is not shown."""

    def papers(self, papers: Iterable[Paper]) -> Iterator[Paper]:
        """Pass the corpus through."""
        return iter(papers)

    def encoding(self, total: int) -> contextlib.AbstractContextManager[Callable[[int], Any]]:  # noqa: ARG002
        """A function that does nothing."""
        return contextlib.nullcontext(lambda _: None)

    def stage(self, name: str) -> None:
        """Nothing is shown."""


def build_index(
    output: Path,
    settings: BuildSettings,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Build an index at ``output``; it appears there whole or not at all.

    The work is done in a hidden folder beside it. When it is interrupted, what is finished stays
    there, and the same call with ``resume`` goes on and ends in an index of the same digest.
    Resuming a build that had ended gives its manifest. ``overwrite`` replaces an index (the old one
    serves until the new one is whole) and discards an unfinished build.

    Raises IndexBuildError when the target exists, another process builds it, or an unfinished build is
    in the way or is one of other inputs; CorpusError for a corpus that cannot be read; ModelError,
    JavaError and OutputError for what the stages need.
    """
    output = Path(os.path.realpath(output))  # "." has no name, and a link must stay
    staging = output.parent / f".{output.name}.building"
    with lock(output.parent / f".{output.name}.lock") as alone:
        if not alone:
            raise IndexBuildError(f"{output} is being built by another process; wait until it ends")
        try:
            finished = _check_target(output, staging, settings, overwrite, resume)
            if finished is None:
                _discard_stale(staging, overwrite, resume)
                finished = _build(output, staging, settings, progress or Silent())
            return finished
        except (OSError, OutputError) as error:
            reason = output_error(staging, error) if isinstance(error, OSError) else error
            kept = "; what is finished is kept: go on with --resume" if (staging / STATE).exists() else ""
            raise OutputError(f"{reason}{kept}") from error
        finally:
            if not (staging / STATE).exists():  # nothing worth resuming
                shutil.rmtree(staging, ignore_errors=True)


def _check_target(
    output: Path, staging: Path, settings: BuildSettings, overwrite: bool, resume: bool
) -> Manifest | None:
    """None when there is something to build; the manifest when a build to resume has ended already."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        manifest = read_manifest(output)
    except IndexFormatError as error:
        raise IndexBuildError(
            f"expected no such path, or an index, at {output}: {error}; choose another --output, or remove it"
        ) from error
    (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
    if overwrite:
        return None
    unfinished = (staging / STATE).exists()
    if resume and not unfinished and manifest.settings == _comparable(settings):
        log.info("the build of %s had ended; nothing is left to do", output)
        return manifest
    advice = "go on replacing it with --overwrite --resume" if unfinished else "replace it with --overwrite"
    raise IndexBuildError(f"{output} is an index already; choose another --output, or {advice}")


def _discard_stale(staging: Path, overwrite: bool, resume: bool) -> None:
    if not staging.exists() or resume:
        return
    if (staging / STATE).exists() and not overwrite:
        raise IndexBuildError(
            f"{staging} holds an unfinished build of this index; continue it with --resume, or discard it "
            "with --overwrite"
        )
    shutil.rmtree(staging)


def _build(output: Path, staging: Path, settings: BuildSettings, progress: Progress) -> Manifest:
    encoder = identity = None
    if settings.dense:
        files = resolve_encoder(settings.encoder, settings.precision)
        encoder, identity = Encoder(files, settings.threads), files.identity
    inputs = {"settings": _comparable(settings), "sources": _sources(settings.corpus), "encoder": identity}
    state = _unfinished(staging, inputs)
    if state is None:
        if settings.bm25:
            _jvm.java_class("io.anserini.index.IndexCollection")  # no Java: told before the corpus is read
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        papers = progress.papers(read_corpus(settings.corpus, split_sentences))
        state = {"inputs": inputs, "counts": write_papers(staging, papers)._asdict()}
        _save(staging, state)
    store = PaperStore(staging)
    if settings.bm25 and "lucene" not in state:
        progress.stage("indexing with Lucene")
        papers = store.read_from(0)
        state["lucene"] = write_postings(
            staging, papers, settings.threads, settings.positions, settings.docvectors
        )
        _save(staging, state)
    if encoder is not None:
        if not (staging / WHOLE).exists() or (staging / SHARDS).exists():
            with progress.encoding(len(store)) as advance:
                write_vectors(staging, store, encoder, advance)
        progress.stage("indexing with FAISS")
        write_neighbours(staging, read_vectors(staging)[0])
        state["dense"] = {"encoder": identity, "dimension": encoder.dimension, "similarity": "inner product"}
    return _publish(staging, output, state)


def _comparable(settings: BuildSettings) -> dict[str, Any]:
    """The settings as the state and the manifest hold them: all that shapes the index."""
    record = dataclasses.asdict(settings)
    del record["threads"]
    return {**record, "corpus": list(settings.corpus)}


def _save(staging: Path, state: dict[str, Any]) -> None:
    sync_tree(staging)
    write_text(staging / STATE, json.dumps(state, indent=1))


def _sources(corpus: tuple[str, ...]) -> list[list[Any]]:
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


def _unfinished(staging: Path, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """The state of an unfinished build of the same inputs; None where no stage was finished."""
    try:
        state: dict[str, Any] = json.loads((staging / STATE).read_text())
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


def _publish(staging: Path, output: Path, state: dict[str, Any]) -> Manifest:
    files = describe_files(staging, leave_out=(STATE, MANIFEST))
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        qbe_version=version("qbe"),
        settings=state["inputs"]["settings"],
        corpus={**state["counts"], "sha256": files[RECORDS]["sha256"]},
        lucene=state.get("lucene"),
        dense=state.get("dense"),
        files=files,
        digest=digest(files, state.get("lucene")),
    )
    write_manifest(staging, manifest)
    publish_directory(staging, output)
    (output / STATE).unlink()
    return manifest
