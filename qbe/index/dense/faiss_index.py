"""The FAISS index of a build: with parameters by rules, or tuned by measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbe.index.dense.ann import AnnSettings, resolve
from qbe.index.dense.faiss_build import save, write_faiss_segment, writing
from qbe.index.dense.stored import Vectors
from qbe.index.dense.tuning import COLUMNS, QUERIES, TOP, tune
from qbe.index.dense.vectors import silent
from qbe.index.papers import PaperLayout


def write_faiss_index(
    folder: Path,
    vectors: Vectors,
    layout: PaperLayout,
    similarity: str,
    settings: AnnSettings,
    threads: int,
    advance: Callable[[int], Any] = silent,
) -> dict[str, Any]:
    """Build a FAISS index over vectors (sentences, dimension) by the settings, into a folder.

    ``advance`` is called with the number of vectors just added; not where trials choose the parameters.
    Returns its parameters as a manifest holds them; of a tuned one with all trials. Raises UsageError for
    settings that do not fit the corpus, OutputError where the index cannot be written.

    >>> folder = Path("by-rules")
    >>> folder.mkdir()
    >>> params = write_faiss_index(folder, index.sentence_vectors, index.layout, "cosine", AnnSettings(), 1)
    >>> params["kind"], params["depth"]
    ('flat', 2000)
    """
    if settings.tune_recall is None:
        params = resolve(settings, *vectors.shape)
        write_faiss_segment(folder, vectors, similarity, params, threads, advance)
        return params.record()
    on_disk = folder if settings.on_disk else None
    with writing(folder, threads):
        tuned = tune(vectors, layout, similarity, settings, on_disk)
        save(folder, tuned.index)
    return tuned.params.record() | {
        "tuned": {
            "target": settings.tune_recall,
            "top": TOP,
            "queries": min(QUERIES, len(layout.starts) - 1),
            "columns": list(COLUMNS),
            "trials": [list(trial) for trial in tuned.trials],
        }
    }
