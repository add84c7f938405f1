"""The last stage of a build: a manifest is written, and the index put in its place."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from qbe.files import publish_directory
from qbe.index.building.unfinished import STATE, State
from qbe.index.labels import describe_predictions
from qbe.index.manifest import FORMAT_VERSION, MANIFEST, Manifest, describe_files, digest, write_manifest
from qbe.index.papers import RECORDS, PaperStore


def publish(staging: Path, output: Path, state: State) -> Manifest:
    """Describe the finished files of a folder in a manifest, and put it in its place."""
    files = describe_files(staging, leave_out=(STATE, MANIFEST))
    tagger = state["tagger"]
    if tagger is not None:
        tagger = {**tagger, **describe_predictions(PaperStore(staging).layout())}
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        qbe_version=version("qbe"),
        settings=state["inputs"]["settings"],
        corpus={**state["counts"], "sha256": files[RECORDS]["sha256"]},
        lucene=state.get("lucene"),
        dense=state.get("dense"),
        tagger=tagger,
        files=files,
        digest=digest(files, state.get("lucene")),
    )
    write_manifest(staging, manifest)
    publish_directory(staging, output)
    (output / STATE).unlink(missing_ok=True)
    return manifest
