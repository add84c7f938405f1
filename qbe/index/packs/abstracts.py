"""An index without the texts of abstracts, where their licence forbids to pass them on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from qbe.corpus.record import dump_record
from qbe.errors import UsageError
from qbe.index.manifest import MANIFEST, describe_files, digest, write_manifest
from qbe.index.papers import OFFSETS, RECORDS
from qbe.index.snapshot import Commit, OpenSegment, Segment, Snapshot, write_commit
from qbe.types import TEXT_NOT_INCLUDED


def write_without_abstracts(snapshot: Snapshot, folder: Path) -> None:
    """Make a folder the index of a commit, with `qbe.types.TEXT_NOT_INCLUDED` for each sentence.

    All files but those of the papers are links to the commit's own; titles and metadata stay. Raises
    UsageError where postings or term vectors have positions, from which texts could be put together again,
    IndexFormatError for a damaged index.

    >>> from qbe.index.reader import IndexReader
    >>> from qbe.index.snapshot import open_snapshot
    >>> snapshot = open_snapshot(index.folder)
    >>> write_without_abstracts(snapshot, Path("indexes/titles"))
    >>> snapshot.close()
    >>> IndexReader(Path("indexes/titles")).paper("s036").sentences[0].text
    '(text not included)'
    """
    segments = []
    for opened in snapshot.segments:
        lucene = opened.manifest.lucene or {}
        if stored := next((name for name in ("positions", "docvectors") if lucene.get(name)), None):
            raise UsageError(
                "expected an index without positions of words, from which texts can be put together again, "
                f"found one with; build it without `{stored}`"
            )
        segments.append(_write_segment(opened, folder / opened.segment.name))
        if opened.segment.deletions is not None:
            _link(snapshot.folder, folder, opened.segment.deletions.file)
    if snapshot.generation:
        write_commit(folder, Commit(snapshot.generation, segments))


def _write_segment(opened: OpenSegment, folder: Path) -> Segment:
    folder.mkdir(parents=True, exist_ok=True)
    opened.files.verify([RECORDS])
    offsets = [0]
    with opened.files.stream(RECORDS) as lines, (folder / RECORDS).open("wb") as records:
        for line in lines:
            record = json.loads(line)
            record["abstract"] = [TEXT_NOT_INCLUDED] * len(record["abstract"])
            offsets.append(offsets[-1] + records.write(dump_record(record)))
    np.save(folder / OFFSETS, np.array(offsets, np.int64))
    described = describe_files(folder, leave_out=[MANIFEST])
    manifest = opened.manifest
    files = {name: described.get(name, entry) for name, entry in manifest.files.items()}
    for name in files.keys() - described.keys():
        _link(opened.files.folder, folder, name)
    manifest = dataclasses.replace(
        manifest,
        corpus={**manifest.corpus, "sha256": files[RECORDS]["sha256"]},
        files=files,
        digest=digest(files, manifest.lucene),
    )
    write_manifest(folder, manifest)
    return dataclasses.replace(opened.segment, digest=manifest.digest)


def _link(source: Path, folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to((source / name).absolute())
