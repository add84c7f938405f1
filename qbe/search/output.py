"""Where the text of a search goes: standard output, a file, or a file whose finished blocks are kept."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import RunError
from qbe.index.index import Index
from qbe.query import PLAIN, Variety
from qbe.search.filters import PaperFilter
from qbe.search.stages import CrossEncoder, Grades, Projections, Stages
from qbe.util.files import atomic_file, lock, resumable_staging, resumed_state, sha256, write_text
from qbe.util.outputs import Seal

log = logging.getLogger(__name__)

STATE = "run.json"
BLOCK = 64
"""Queries searched together, and kept together when a run is interrupted."""

Inputs = dict[str, Any]
"""All that the results of a run depend on, as JSON holds it."""


class BlockFile:
    """A text file made of blocks, which wait in a hidden folder beside its place until all are there."""

    def __init__(self, output: Path, folder: Path, inputs: Inputs) -> None:
        self._output, self._folder, self._inputs = output, folder, inputs

    def has(self, number: int) -> bool:
        """Whether a block, counted from 0, is finished."""
        return self._block(number).exists()

    def add(self, number: int, text: str) -> None:
        """Keep a block; it is on the disk when this returns."""
        if not (self._folder / STATE).exists():
            write_text(self._folder / STATE, json.dumps(self._inputs, indent=1))
        write_text(self._block(number), text)

    def is_resumable(self) -> bool:
        """Whether there are finished blocks that `resume` continues with."""
        return any(self._folder.glob("*.block"))

    def publish(self, blocks: int, seal: Seal) -> None:
        """Put the file in its place, out of that many blocks and the end of the seal, and remove them."""
        with atomic_file(self._output) as stream:
            for number in range(blocks):
                text = self._block(number).read_bytes()
                seal.add(text)
                stream.write(text)
            stream.write(seal.end())
        shutil.rmtree(self._folder)

    def _block(self, number: int) -> Path:
        return self._folder / f"{number:08d}.block"


@contextlib.contextmanager
def block_file(output: Path, inputs: Inputs, *, resume: bool) -> Iterator[BlockFile]:
    """The file at ``output``, to be written by blocks while nobody else writes it.

    What is finished stays when the writing is interrupted; the same call with ``resume``, and the same
    ``inputs``, has these blocks already. Raises RunError where another process writes the file, or unfinished
    blocks are in the way or are those of other inputs; OutputError for what cannot be written.

    >>> with block_file(Path("run.txt"), {"hits": 10}, resume=False) as file:
    ...     file.add(0, "block 0, ")
    ...     file.add(1, "block 1")
    ...     file.publish(2, Seal("qbe search", "trec"))
    >>> Path("run.txt").read_text()
    'block 0, block 1'
    """
    output = Path(os.path.realpath(output))
    folder = output.parent / f".{output.name}.part"
    with lock(output.parent / f".{output.name}.lock") as is_only_writer:
        if not is_only_writer:
            raise RunError(f"{output} is being written by another process; wait until it ends")
        _resume(folder, inputs, resume=resume)
        file = BlockFile(output, folder, inputs)
        with resumable_staging(folder, file.is_resumable):
            yield file


def _resume(folder: Path, inputs: Inputs, *, resume: bool) -> None:
    """Decide about an unfinished run that is in the way."""
    if not folder.exists():
        return
    work = ("run", "the index, topics and options", "remove that folder", RunError)
    if resumed_state(folder / STATE, inputs if resume else None, *work) is None:
        shutil.rmtree(folder)
        return
    log.info("continuing the unfinished run in %s", folder)


class Destination(NamedTuple):
    """Where text goes: a ``path``, None for standard output; ``in_blocks`` where finished blocks are kept
    beside it, which ``resume`` is about. A file ends with the seal of ``command`` and ``form``.
    """

    path: Path | None
    command: str = "qbe search"
    form: str = "trec"
    in_blocks: bool = False
    resume: bool = False


def write_blocks(
    destination: Destination,
    describe: Callable[[], Inputs],
    count: int,
    texts: Callable[[Sequence[slice]], Iterator[str]],
) -> None:
    """Write the texts of ``count`` items to a destination, BLOCK of them at a time; errors are those of
    `block_file`.

    ``texts`` gives the text of each of some blocks; where finished blocks are kept, it is asked for the
    missing ones alone, and ``describe`` gives all that they depend on. A KeyboardInterrupt says there how to
    continue. One query's file, or one that is no regular file, such as a pipe, is written in the end.

    >>> write_blocks(Destination(None), dict, 65, lambda blocks: (f"{block.stop} " for block in blocks))
    64 128
    """
    blocks = [slice(first, first + BLOCK) for first in range(0, count, BLOCK)]
    path, seal = destination.path, Seal(destination.command, destination.form)
    if path is None:
        for text in texts(blocks):
            sys.stdout.write(text)
        return
    if not destination.in_blocks or (path.exists() and not path.is_file()):
        text = "".join(texts(blocks))
        seal.add(text.encode())
        write_text(path, text + seal.end().decode())
        return
    inputs = describe()
    with block_file(path, inputs, resume=destination.resume) as file:
        try:
            missing = [block for number, block in enumerate(blocks) if not file.has(number)]
            for block, text in zip(missing, texts(missing), strict=True):
                file.add(block.start // BLOCK, text)
            file.publish(len(blocks), seal)
        except KeyboardInterrupt:
            hint = ("; --resume continues with what is finished",) if file.is_resumable() else ()
            raise KeyboardInterrupt(*hint) from None


class RunInputs(NamedTuple):
    """What a run depends on besides index and stages: the files of topics and pools, the facet that selects
    topics, or weights of facets by name, the filter, whose labels are used, hits a query, and how results are
    written (``width`` of tables, in columns).
    """

    topics: Path
    pool: Path | None
    facet: str | Mapping[str, float] | None
    filter: PaperFilter | None
    labels: str
    k: int
    run_tag: str
    format: str
    width: int
    explain: bool
    variety: Variety = PLAIN


def fingerprint(index: Index, stages: Stages, run: RunInputs) -> Inputs:
    """All that a run depends on, as JSON holds it; errors are those of opening the models.

    >>> from qbe.search.stages import Fused
    >>> topics = Path("sample/topics.tsv")
    >>> run = RunInputs(topics, None, "method", None, "given", 10, "qbe", "trec", 80, explain=False)
    >>> fingerprint(index, Stages(Fused()), run)["options"]["hits"]
    10
    """
    from importlib.metadata import version  # as all that follows, what runs in a file alone need

    described = {
        "index": index.manifest.digest,
        "topics": sha256(run.topics),
        "pool": sha256(run.pool) if run.pool else None,
        "options": {
            **stages.to_json(),
            "filter": run.filter and run.filter.record(),
            "labels": run.labels,
            "facet": run.facet,
            "mix": dict(run.variety.mix),
            "bounds": {facet.value: list(bounds) for facet, bounds in run.variety.bounds.items()},
            "hits": run.k,
            "run_tag": run.run_tag,
            "explain": run.explain,
            "format": run.format,
            "width": run.width if run.format == "table" else None,
        },
        "models": _models(index, stages, predicted=run.labels == "predicted"),
        "version": [version("qbe"), BLOCK],
    }
    inputs: Inputs = json.loads(json.dumps(described))
    return inputs


def _models(index: Index, stages: Stages, *, predicted: bool) -> dict[str, Any]:
    """The identities of the grade model, of the reranker, and of a tagger that labels queries."""
    from qbe.models.grades import WEIGHTS, shipped_model

    dense, reranker = index.manifest.dense, stages.reranker
    grades = None if dense is None else shipped_model(dense["encoder"])
    models: dict[str, Any] = {"grades": None if grades is None else sha256(grades / WEIGHTS)}
    if isinstance(reranker, Grades) and reranker.joint is not None:
        from qbe.models.cards import JOINT_GRADER, JOINT_GRADES

        models["joint"] = sha256(JOINT_GRADES / JOINT_GRADER.metadata_file)
    if isinstance(reranker, CrossEncoder):
        from qbe.search.rerankers import describe_reranker

        models["reranker"] = describe_reranker(**({} if reranker.model is None else {"name": reranker.model}))
    if isinstance(reranker, Projections):
        from qbe.search import projections

        assert dense is not None
        given = None if reranker.model is None else Path(reranker.model)
        folder = projections.find_model(dense["encoder"], given)
        models["projections"] = sha256(folder / projections.WEIGHTS)
    if predicted:
        from qbe.models.tagger import Tagger

        models["tagger"] = Tagger.open(index.manifest.settings["tagger"]).identity
    return models
