"""Adding papers to an index, replacing and deleting them, or all of these to make it equal to a corpus, each
call in one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.errors import OutputError, PaperNotFoundError, UsageError
from qbe.index.building.additions import APPEND, SYNC, UPDATE, Additions, Confirm
from qbe.index.building.build import build_segment
from qbe.index.building.rejected import add_rejected, check_replaceable, rejected_file
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.building.writer import Written, commit, resolved, without, writing
from qbe.index.manifest import Manifest
from qbe.index.models import matching_encoder
from qbe.index.segments.combined import combined_manifest, tagger_identity
from qbe.index.segments.commit import Segment, segment_name
from qbe.index.segments.snapshot import Snapshot
from qbe.index.segments.views import PaperStore

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
    `qbe.index.building.build.build`. Papers that the index has as they are are counted and left alone. Of one
    that it has with other content under the same id the index keeps its own, and the corpus's is listed with
    the records that are left out; with ``update`` the corpus's replaces it, and gets a new row.
    Records that are left out are counted, and added to the index's list
    (`qbe.index.building.rejected.rejected_file`).
    ``encoder`` and ``tagger`` (a name or folder) say where those that the index was built with are now,
    ``device`` (one of `qbe.models.session.DEVICES`) runs the encoder. All papers become visible at once, to
    readers that open the index later; when anything fails the index is unchanged.

    Raises IndexBuildError for another tagger than the index's and where another process writes,
    EncoderMismatchError for another encoder than the index's, and what
    `qbe.index.building.build.build` and `qbe.index.building.writer.writing` do.

    >>> from qbe.index.building.build import build
    >>> _ = build(Path("indexes/longer"), [index.paper("s001")], BuildSettings(dense=False))
    >>> written = append_papers("indexes/longer", [index.paper("s001"), index.paper("s002")])
    >>> written.added, written.unchanged, written.papers
    (1, 1, 2)
    """
    models = {"encoder": encoder, "tagger": tagger, "device": device}
    source, how = open_corpus(corpus, reading), UPDATE if update else APPEND
    with writing(resolved(folder)) as snapshot:
        return _change(resolved(folder), snapshot, source, how, models, execution)


def sync_papers(
    folder: str | Path,
    corpus: Corpus,
    *,
    reading: Reading = AS_IT_COMES,
    confirm: Confirm = lambda question: False,  # noqa: ARG005
    encoder: str | None = None,
    tagger: str | None = None,
    device: str | None = None,
    execution: Execution | None = None,
) -> Written:
    """Make the papers of an index those of a corpus, in one commit: those that it lacks are added, those of
    other content replaced, those that the corpus lacks deleted; all others are left alone.

    A paper whose record in the corpus was skipped stays as it is. Where no ``reading`` is given, files are
    read as they were when the index was built. ``confirm`` is called with a question before more than one
    paper and a tenth of all are deleted, or any while skipped records do not tell their ids. Other parameters
    and errors are those of `append_papers`; raises UsageError where the answer is no, and for a reading with
    a ``limit``.

    >>> from qbe.index.building.build import build
    >>> papers = [index.paper(f"s00{number}") for number in (1, 2, 3)]
    >>> _ = build(Path("indexes/same"), papers[:2], BuildSettings(dense=False))
    >>> written = sync_papers("indexes/same", papers[1:])
    >>> written.added, written.deleted, written.unchanged, list(written.deleted_titles)
    (1, 1, 1, ['s001'])
    """
    if reading.limit is not None:
        raise UsageError("`limit` is of no use with `sync`, which would delete the papers beyond it; drop it")
    models = {"encoder": encoder, "tagger": tagger, "device": device}
    with writing(resolved(folder)) as snapshot:
        if reading == AS_IT_COMES:
            recorded = snapshot.segments[0].manifest.corpus.get("reading", {})
            reading = Reading(**{**recorded, "limit": None})
        source = open_corpus(corpus, reading)
        return _change(resolved(folder), snapshot, source, SYNC, models, execution, confirm)


def _change(
    folder: Path,
    snapshot: Snapshot,
    source: Source,
    how: str,
    models: Mapping[str, str | None],
    execution: Execution | None,
    confirm: Confirm = lambda question: False,  # noqa: ARG005
) -> Written:
    """Write what a source changes of an index, if anything; ``how`` is that of `Additions`."""
    check_replaceable(folder)
    manifest = combined_manifest(snapshot)
    settings = _settings(manifest, models)
    if manifest.dense is not None:
        matching_encoder(folder, manifest, settings.encoder)
    papers = PaperStore(snapshot.segments, predictions=False)
    additions = Additions(source, papers, how, confirm, settings.dense and settings.facets == "predicted")
    name = segment_name(snapshot.generation + 1)
    segment = build_segment(
        additions.source, folder / name, settings, execution or Execution(), tagger_identity(manifest), folder
    )
    dead = np.array([*additions.replaced, *additions.gone], np.int64)
    segments, generation = [each.segment for each in snapshot.segments], snapshot.generation
    if segment is not None or len(dead):
        segments = without(folder, snapshot, dead)
        if segment is not None:
            segments.append(Segment(name, segment.digest))
        generation = commit(folder, snapshot, segments)
    try:
        if how == SYNC:  # the records of another corpus, whose papers are gone
            rejected_file(folder).unlink(missing_ok=True)
        add_rejected(folder / name, folder)
    except (OSError, OutputError) as error:  # the papers are there all the same
        log.warning("%s: records were skipped, but the list of them could not be written", error)
    return Written(
        added=additions.written - len(additions.replaced),
        replaced=len(additions.replaced),
        deleted=len(additions.gone),
        papers=len(papers) + additions.written - len(dead),
        segments=len(segments),
        generation=generation,
        left_out=additions.left_out.counts(),
        unchanged=additions.unchanged,
        kept=tuple(additions.kept),
        deleted_titles={papers.ids[row]: title for row, title in additions.gone.items()},
    )


def delete_papers(folder: str | Path, paper_ids: Iterable[str]) -> Written:
    """Delete papers from an index: readers that open it later do not find them.

    Their text and vectors stay on the disk, and count in BM25's statistics, until
    `qbe.index.building.compaction`, or until their segment has no other paper. Raises PaperNotFoundError
    where the index lacks one of the ids, and UsageError for no ids and for all the index's (then nothing is
    deleted), TypeError for anything but an iterable of str, and what `qbe.index.building.writer.writing`
    does.

    >>> import shutil
    >>> folder = shutil.copytree(index.folder, "indexes/shorter")
    >>> written = delete_papers(folder, ["s001", "s002"])
    >>> written.deleted, written.papers, written.segments
    (2, 126, 1)
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
        papers = PaperStore(snapshot.segments)
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


def _settings(manifest: Manifest, models: Mapping[str, str | None]) -> BuildSettings:
    """The index's settings, with those models that are not None."""
    changed = {name: value for name, value in models.items() if value is not None}
    return BuildSettings.read(manifest.settings, **changed)
