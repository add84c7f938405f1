"""Building a part of an index: its papers and encoded shards, without postings and FAISS."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from qbe.corpus import read_corpus
from qbe.encode.encoder import Encoder
from qbe.errors import IndexBuildError, IndexFormatError, UsageError
from qbe.files import publish_directory
from qbe.index.building.guard import guarded
from qbe.index.building.progress import Progress, Silent
from qbe.index.building.settings import BuildSettings
from qbe.index.building.source import CorpusSource
from qbe.index.building.tagging import BuildTagger
from qbe.index.building.timings import Timings
from qbe.index.building.unfinished import STATE, State, read_state, save_state
from qbe.index.dense import vectors
from qbe.index.manifest import PART, describe_files
from qbe.index.papers import PaperStore, write_papers
from qbe.index.parts.part import BuildShard, PartMetadata, Selection, read_part, write_part
from qbe.models.encoder_files import resolve_encoder
from qbe.text.split import split_sentences


def build_part(
    output: Path,
    settings: BuildSettings,
    part: BuildShard,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> PartMetadata:
    """Encode a part of a corpus into a folder at ``output``; it appears there whole or not at all.

    It is resumed and replaced as an index is (see `qbe.index.building.build.build_index`, and its errors).
    The whole corpus is read, so that what a part says of it can be compared; only the part's papers are
    encoded. Raises UsageError for settings without vectors.
    """
    if not settings.dense:
        raise UsageError("a part holds vectors, and --bm25-only has none; drop one of them")
    ended = functools.partial(_ended, settings, part, overwrite, resume)
    build = functools.partial(_build, settings, part, progress or Silent(), timings or Timings())
    return guarded(output, ended, build, overwrite=overwrite, resume=resume)


def _ended(
    settings: BuildSettings, part: BuildShard, overwrite: bool, resume: bool, output: Path, staging: Path
) -> PartMetadata | None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        card = read_part(output)
    except IndexFormatError as error:
        raise IndexBuildError(
            f"expected no such path, or a part, at {output}: {error}; choose another --output, or remove it"
        ) from error
    (output / STATE).unlink(missing_ok=True)  # left by a build that was killed as it ended
    if overwrite:
        return None
    unchanged = CorpusSource(settings.corpus).newest() <= (output / PART).stat().st_mtime_ns
    same = card.settings == settings.record() and card.part == part
    if resume and same and unchanged and not (staging / STATE).exists():
        return card
    raise IndexBuildError(
        f"{output} is a part already; choose another --output, or replace it with --overwrite"
    )


def _build(
    settings: BuildSettings,
    part: BuildShard,
    progress: Progress,
    timings: Timings,
    output: Path,
    staging: Path,
) -> PartMetadata:
    files = resolve_encoder(settings.encoder, settings.precision)
    encoder, tagger = Encoder(files, settings.threads, settings.device), BuildTagger(settings)
    inputs = {
        "settings": settings.record(),
        "sources": CorpusSource(settings.corpus).describe(),
        "encoder": files.identity,
        "part": str(part),
    }
    state = read_state(staging, inputs)
    if state is None:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        with timings.stage("papers"):
            selection, split = Selection(part), timings.timed("splitting", split_sentences)
            papers = tagger.papers(progress.papers(read_corpus(settings.corpus, split)))
            counts = write_papers(staging, selection.of(papers))
            predicted = counts.papers - counts.labelled
            state = {"inputs": inputs, "counts": {**counts._asdict(), "predicted": predicted}}
            state |= {"tagger": tagger.identity(predicted), "corpus": selection.corpus}
            save_state(staging, state)
    store = PaperStore(staging, predictions=False)
    tagging = tagger.encoder(encoder, state["tagger"])
    with progress.encoding(len(store)) as advance, timings.stage("vectors"):
        vectors.write_shards(staging, store, tagging, advance, part.place)
    timings.seconds["tagging"] += tagging.tagging_seconds
    with timings.stage("files"):
        return _publish(staging, output, part, state)


def _publish(staging: Path, output: Path, part: BuildShard, state: State) -> PartMetadata:
    card = PartMetadata(
        part=part,
        shard_papers=vectors.SHARD_PAPERS,
        settings=state["inputs"]["settings"],
        corpus=state["corpus"],
        counts=state["counts"],
        encoder=state["inputs"]["encoder"],
        tagger=state["tagger"],
        files=describe_files(staging, leave_out=(STATE, PART)),
    ).sealed()
    write_part(staging, card)
    publish_directory(staging, output)
    (output / STATE).unlink()
    return card
