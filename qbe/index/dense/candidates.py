"""The stage of a build that makes the FAISS index: by rules, or tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbe.errors import OutputError
from qbe.index.dense.ann import AnnSettings, plan
from qbe.index.dense.neighbours import FAISS
from qbe.index.dense.neighbours_build import save, write_neighbours
from qbe.index.dense.stored import Vectors
from qbe.index.dense.tuning import QUERIES, TOP, Trial, tune
from qbe.index.papers import PaperLayout


def write_candidates(
    folder: Path,
    vectors: Vectors,
    layout: PaperLayout,
    similarity: str,
    settings: AnnSettings,
    threads: int,
) -> dict[str, Any]:
    """Build the FAISS index that the settings ask for over vectors (sentences, dimension), into a folder.

    Gives the plan as the manifest holds it; a tuned one with what was tried. Raises UsageError for
    settings that do not fit the corpus, OutputError where the index cannot be written.
    """
    if settings.tune_recall is None:
        made = plan(settings, *vectors.shape)
        write_neighbours(folder, vectors, similarity, made, threads)
        return made.record()
    on_disk = folder if settings.on_disk else None
    try:
        tuned = tune(vectors, layout, similarity, settings, threads, on_disk)
        save(folder, tuned.index)
    except RuntimeError as error:
        raise OutputError(f"cannot write {folder / FAISS}: {error}; check the disk's free space") from error
    return tuned.plan.record() | {
        "tuned": {
            "target": settings.tune_recall,
            "top": TOP,
            "queries": min(QUERIES, len(layout.starts) - 1),
            "columns": list(Trial._fields),
            "trials": [list(trial) for trial in tuned.trials],
        }
    }
