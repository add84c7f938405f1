"""Papers with their facets predicted once, and kept for the next call of a training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.errors import ModelError
from qbe.tag.tagger import Tagger, labelled
from qbe.tag.tagging import TaggingEncoder
from qbe.types import FacetProbabilities, Paper

log = logging.getLogger(__name__)


def tagged(
    papers: Mapping[str, Paper], encoder: Encoder, tagger: Tagger, kept: Path | None = None
) -> dict[str, Paper]:
    """The papers (by id), each sentence with the facet that the tagger predicts.

    Predictions found in the file ``kept`` are taken from there, and all are written to it. Raises
    ModelError where it cannot be read.
    """
    known = _load(kept) if kept is not None and kept.exists() else {}
    new = [
        paper for identity, paper in papers.items() if len(known.get(identity, ())) != len(paper.sentences)
    ]
    log.info("predicting facets of %d papers, of %d they are known", len(new), len(papers) - len(new))
    for paper, _ in TaggingEncoder(encoder, tagger, "predicted").encode(new):
        known[paper.paper_id] = np.array([s.probabilities for s in paper.sentences], np.float32)
    if kept is not None and new:
        _save(kept, known)
    return {
        identity: labelled(paper, [FacetProbabilities(*row) for row in known[identity].tolist()])
        for identity, paper in papers.items()
    }


def _save(path: Path, known: Mapping[str, Floats]) -> None:
    partial = path.with_suffix(".partial.npz")
    lengths: Sequence[int] = [len(rows) for rows in known.values()]
    np.savez(partial, ids=list(known), lengths=lengths, probabilities=np.concatenate(list(known.values())))
    partial.replace(path)


def _load(path: Path) -> dict[str, Floats]:
    try:
        with np.load(path) as found:
            ends = np.cumsum(found["lengths"])[:-1]
            return dict(zip(found["ids"].tolist(), np.split(found["probabilities"], ends), strict=True))
    except Exception as error:
        raise ModelError(
            f"{path}: expected the predicted facets of this training, found: {error}; delete it"
        ) from error
