"""Adding papers to an index, replacing and deleting them, each call in one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from qbe.corpus.leftout import LeftOut
from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.corpus.record import Splitter
from qbe.errors import IndexBuildError, OutputError, PaperNotFoundError, UsageError
from qbe.index.building.build import build_segment
from qbe.index.building.rejected import add_rejected, check_replaceable
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.live.writer import Written, commit, resolved, without, writing
from qbe.index.manifest import Manifest
from qbe.index.models import matching_encoder
from qbe.index.segments.combined import combined_manifest, tagger_identity
from qbe.index.segments.commit import Segment, segment_name
from qbe.index.segments.views import Papers, open_papers
from qbe.types import Paper

log = logging.getLogger(__name__)


def append_papers(
    folder: str | Path,
    corpus: Corpus,
    *,
    reading: Reading = AS_IT_COMES,
    update: bool = False,
    encoder: str | None = None,
    tagger: str | None = None,
    device: str | None = None,
    execution: Execution | None = None,
) -> Written:
    """Add the papers of a corpus to an index, as a further segment built with the index's settings.

    ``corpus`` is a path or ``hf:`` name, several of them, or papers, ``reading`` as in
    `qbe.index.building.build.build`. Papers whose ids the index has are
    refused before any is encoded; with ``update`` they replace the former ones, and get new rows.
    Records that are left out are counted, and added to the list beside the index
    (`qbe.index.building.rejected.rejected_file`).
    ``encoder`` and ``tagger`` (a name or folder) say where those that the index was built with are now,
    ``device`` (one of `qbe.models.session.DEVICES`) runs the encoder. All papers become visible at once, to
    readers that open the index later; when anything fails the index is unchanged.

    Raises IndexBuildError for ids that the index has, for another tagger than the index's and where another
    process writes, EncoderMismatchError for another encoder than the index's, and what
    `qbe.index.building.build.build` and `qbe.index.live.writer.writing` do.

    >>> from qbe.index.building.build import build
    >>> _ = build(Path("indexes/longer"), [index.paper("s001")], BuildSettings(dense=False))
    >>> append_papers("indexes/longer", [index.paper("s002")])
    Written(added=1, replaced=0, deleted=0, papers=2, segments=2, generation=1, left_out={})
    """
    folder, source = resolved(folder), open_corpus(corpus, reading)
    check_replaceable(folder)
    with writing(folder) as snapshot:
        manifest = combined_manifest(snapshot)
        settings = _settings(manifest, encoder=encoder, tagger=tagger, device=device)
        if manifest.dense is not None:
            matching_encoder(folder, manifest, settings.encoder)
        papers = open_papers(snapshot.segments)
        additions = _Additions(source, papers, update)
        name = segment_name(snapshot.generation + 1)
        segment = build_segment(
            additions, folder / name, settings, execution or Execution(), tagger_identity(manifest), folder
        )
        replaced = np.array(additions.known, np.int64)
        segments = [*without(folder, snapshot, replaced), Segment(name, segment.digest)]
        generation = commit(folder, snapshot, segments)
        try:
            add_rejected(folder / name, folder)
        except (OSError, OutputError) as error:  # the papers are there all the same
            log.warning("%s: records were skipped, but the list of them could not be written", error)
        added = segment.corpus["papers"] - len(replaced)
        return Written(
            added=added,
            replaced=len(replaced),
            deleted=0,
            papers=len(papers) + added,
            segments=len(segments),
            generation=generation,
            left_out=segment.corpus.get("left_out", {}),
        )


def delete_papers(folder: str | Path, paper_ids: Iterable[str]) -> Written:
    """Delete papers from an index: readers that open it later do not find them.

    Their text and vectors stay on the disk, and count in BM25's statistics, until
    `qbe.index.live.compaction`, or until their segment has no other paper. Raises PaperNotFoundError where
    the index lacks one of the ids, and UsageError for no ids and for all the index's (then nothing is
    deleted), TypeError for anything but an iterable of str, and what `qbe.index.live.writer.writing` does.

    >>> import shutil
    >>> folder = shutil.copytree(index.folder, "indexes/shorter")
    >>> delete_papers(folder, ["s001", "s002"])
    Written(added=0, replaced=0, deleted=2, papers=126, segments=1, generation=1, left_out={})
    """
    if isinstance(paper_ids, str):
        raise TypeError("expected `paper_ids` as an iterable of str, found one str; put it into a list")
    if not isinstance(paper_ids, Iterable):
        raise TypeError(f"expected `paper_ids` as an iterable of str, found {type(paper_ids).__name__}")
    paper_ids = list(paper_ids)
    for paper_id in paper_ids:
        if not isinstance(paper_id, str):
            raise TypeError(f"expected `paper_ids` of str, found {type(paper_id).__name__} in them")
    folder = resolved(folder)
    with writing(folder) as snapshot:
        papers = open_papers(snapshot.segments)
        rows = {paper_id: papers.find(paper_id) for paper_id in paper_ids}
        unknown = [paper_id for paper_id, row in rows.items() if row is None]
        if unknown:
            raise PaperNotFoundError(
                f"expected ids of papers of {folder}, found {len(unknown)} of {len(rows)} that it lacks, "
                f"such as {unknown[0]!r}; nothing was deleted: check them"
            )
        if not 0 < len(rows) < len(papers):
            raise UsageError(
                f"expected ids of 1 to {len(papers) - 1} of the {len(papers)} papers of {folder}, found "
                f"{len(rows)}; an index keeps at least one paper: remove the folder to be rid of all"
            )
        dead = np.array([row for row in rows.values() if row is not None], np.int64)
        segments = without(folder, snapshot, dead)
        generation = commit(folder, snapshot, segments)
        return Written(0, 0, len(dead), len(papers) - len(dead), len(segments), generation)


class _Additions:
    """The papers of a source to be added to an index; ``known`` are the rows of those it has already."""

    def __init__(self, source: Source, papers: Papers, update: bool) -> None:
        self.names = source.names
        self.describe, self.newest = source.describe, source.newest
        self.add_finished_shards = source.add_finished_shards
        self.how_read, self.share_read = source.how_read, source.share_read
        self._source, self._papers, self._update = source, papers, update
        self.known: list[int] = []

    def papers(self, split: Splitter, left_out: LeftOut) -> Iterator[Paper]:
        """The papers as a stream; raises IndexBuildError at their end for ids that the index has, unless they
        are to be replaced.
        """
        first = None
        for paper in self._source.papers(split, left_out):
            row = self._papers.find(paper.paper_id)
            if row is not None:
                first = first or paper.paper_id
                self.known.append(row)
            yield paper
        if first is not None and not self._update:
            raise IndexBuildError(
                f"expected papers that the index lacks, found {len(self.known)} that it has, such as "
                f"{first!r}; replace them with `update`, or drop them from the corpus"
            )


def _settings(manifest: Manifest, **changes: str | None) -> BuildSettings:
    """The index's settings, with those changes that are not None."""
    changed = {name: value for name, value in changes.items() if value is not None}
    return BuildSettings.read(manifest.settings, **changed)
