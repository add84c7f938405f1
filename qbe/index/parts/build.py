"""Building a part of an index: its papers and encoded shards, without postings and FAISS."""

from __future__ import annotations

from pathlib import Path

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.errors import UsageError
from qbe.files import publish_directory
from qbe.index.building import shards, stages
from qbe.index.building.models import BuildModels
from qbe.index.building.rejected import check_replaceable, publish_rejected, recorded
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.building.source import Corpus, Source, open_corpus
from qbe.index.building.staging import Place, build_place
from qbe.index.building.target import check_target
from qbe.index.building.unfinished import STATE, State, read_state, save_state
from qbe.index.manifest import PART, describe_files
from qbe.index.parts.part import BuildShard, PartMetadata, PartPapers, read_part, write_part


def build_part(
    output: Path,
    corpus: Corpus,
    settings: BuildSettings,
    part: BuildShard,
    *,
    reading: Reading = AS_IT_COMES,
    overwrite: bool = False,
    resume: bool = False,
    execution: Execution | None = None,
) -> PartMetadata:
    """Encode a part of a corpus into a folder at ``output``; it appears there whole or not at all.

    It is resumed and replaced as an index is (see `qbe.index.building.build.build`, and its errors). The
    whole corpus is read, so that parts can be checked to be of the same one; only the part's papers are
    encoded. Raises UsageError for settings without vectors.
    """
    if not settings.dense:
        raise UsageError("a part holds vectors: expected settings with `dense`, found none; build it whole")
    check_replaceable(output)
    source, execution = open_corpus(corpus, reading), execution or Execution()
    with build_place(output) as place:
        finished = check_target(
            place,
            "a part",
            read_part,
            lambda existing: (
                existing.part == part
                and stages.is_same(existing.settings, existing.counts, settings, source)
                and source.newest() <= (place.output / PART).stat().st_mtime_ns
            ),
            overwrite=overwrite,
            resume=resume,
        )
        if finished is not None:
            return finished
        return _run(place, source, settings, part, execution)


def _run(
    place: Place, source: Source, settings: BuildSettings, part: BuildShard, execution: Execution
) -> PartMetadata:
    """All stages that an unfinished build has not finished, in order."""
    staging = place.staging
    models = BuildModels(settings, execution.threads)
    inputs = stages.inputs(source, settings, models) | {"part": str(part)}
    state = read_state(staging, inputs)
    if state is None:
        stages.clear(staging)
        with execution.timings.stage("papers"):
            selection = PartPapers(part)
            with recorded(place) as left_out:
                papers = selection.of(stages.read_papers(source, models, execution, left_out))
                counts = stages.write_corpus(staging, papers, lucene=False)
            state = {**stages.begin_state(inputs, counts, models, left_out), "corpus": selection.corpus}
            save_state(staging, state)
    stages.encode(staging, models.tagging_encoder(state["tagger"]), execution, place=part.place)
    with execution.timings.stage("files"):
        return _publish(place, part, state)


def _publish(place: Place, part: BuildShard, state: State) -> PartMetadata:
    publish_rejected(place)
    metadata = PartMetadata(
        part=part,
        shard_papers=shards.SHARD_PAPERS,
        settings=state["inputs"]["settings"],
        corpus=state["corpus"],
        counts=state["counts"],
        encoder=state["inputs"]["encoder"],
        tagger=state["tagger"],
        files=describe_files(place.staging, leave_out=(STATE, PART)),
    ).sealed()
    write_part(place.staging, metadata)
    publish_directory(place.staging, place.output)
    (place.output / STATE).unlink()
    return metadata
