"""Papers added to an index, replaced in it and deleted from it, each call in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbe.corpus.record import Splitter
from qbe.errors import IndexBuildError, PaperNotFoundError, UsageError
from qbe.index.building.build import build_segment
from qbe.index.building.progress import Progress
from qbe.index.building.settings import BuildSettings
from qbe.index.building.source import CorpusSource
from qbe.index.live.writer import Written, commit, resolved, without, writing
from qbe.index.manifest import Manifest
from qbe.index.models import matching_encoder
from qbe.index.segments.combined import combined_manifest, labeller
from qbe.index.segments.commit import Segment, segment_name
from qbe.index.segments.views import Papers, open_papers
from qbe.types import Paper


def append_papers(
    folder: str | Path,
    corpus: Sequence[str],
    *,
    update: bool = False,
    encoder: str | None = None,
    tagger: str | None = None,
    device: str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Written:
    """Add the papers of a corpus to an index, as a further segment built with the index's settings.

    Papers whose ids the index has are refused before any is encoded; with ``update`` they replace the
    former ones, and get new rows. ``encoder`` and ``tagger`` (a name or folder) say where those that the
    index was built with are found now, ``device`` (one of `qbe.models.session.DEVICES`) what encodes. All
    becomes visible at once, to whoever opens the index later; when anything fails the index is as it was.

    Raises IndexBuildError for ids that the index has, for another tagger than the index's and where another
    process writes, EncoderMismatchError for another encoder than the index's, and what
    `qbe.index.building.build.build_index` and `qbe.index.live.writer.writing` do.
    """
    folder = resolved(folder)
    with writing(folder) as snapshot:
        manifest = combined_manifest(snapshot)
        settings = _settings(manifest, corpus, encoder=encoder, tagger=tagger, device=device, threads=threads)
        if manifest.dense is not None:
            matching_encoder(folder, manifest, settings.encoder)
        papers = open_papers(snapshot.parts)
        arrivals = _Arrivals(settings.corpus, papers, update)
        name = segment_name(snapshot.generation + 1)
        built = build_segment(arrivals, folder / name, settings, labeller(manifest), progress)
        replaced = np.array(arrivals.known, np.int64)
        segments = [*without(folder, snapshot, replaced), Segment(name, built.digest)]
        generation = commit(folder, snapshot, segments)
        added = built.corpus["papers"] - len(replaced)
        return Written(added, len(replaced), 0, len(papers) + added, len(segments), generation)


def delete_papers(folder: str | Path, ids: Iterable[str]) -> Written:
    """Delete papers from an index; they are not found any more by whoever opens it later.

    Their text and vectors stay on the disk, and count in BM25's statistics, until
    `qbe.index.live.compaction`, or until their segment has no other paper. Raises PaperNotFoundError where
    the index lacks one of the ids, and UsageError for no ids and for all the index's: then nothing is
    deleted; and what `qbe.index.live.writer.writing` does.
    """
    folder = resolved(folder)
    with writing(folder) as snapshot:
        papers = open_papers(snapshot.parts)
        rows = {paper_id: papers.find(paper_id) for paper_id in ids}
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


class _Arrivals(CorpusSource):
    """The papers of a corpus on their way into an index; ``known`` are the rows of those it has already."""

    def __init__(self, corpus: tuple[str, ...], papers: Papers, update: bool) -> None:
        super().__init__(corpus)
        self._papers, self._update = papers, update
        self.known: list[int] = []

    def papers(self, split: Splitter) -> Iterator[Paper]:
        """The papers as a stream; raises IndexBuildError at their end for ids that must not come."""
        first = None
        for paper in super().papers(split):
            row = self._papers.find(paper.paper_id)
            if row is not None:
                first = first or paper.paper_id
                self.known.append(row)
            yield paper
        if first is not None and not self._update:
            raise IndexBuildError(
                f"expected papers that the index lacks, found {len(self.known)} that it has, such as "
                f"{first!r}; replace them with --update, or drop them from the corpus"
            )


def _settings(manifest: Manifest, corpus: Sequence[str], **changes: Any) -> BuildSettings:
    """The index's settings for other papers, with those changes that are not None."""
    given = {name: value for name, value in changes.items() if value is not None}
    return BuildSettings.read(manifest.settings, corpus=tuple(corpus), **given)
