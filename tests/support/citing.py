"""Papers that cite each other, indexes of them, and a citation model of random weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qbe import BuildSettings, Paper
from qbe.cite.recommender import CitationModel, write_model
from qbe.cite.scoring import FEATURE_SETS, Projection
from qbe.index.build import build
from qbe.index.store import read_manifest
from qbe.models.cards import Head
from support.live import corpus
from support.tiny import HIDDEN

COUNT, CITING = 48, 40
"""Papers, and how many of them, the first ones, say what they cite."""

NO_YEAR = 10
"""The place of a paper without a year."""

HIDDEN_UNITS = 3


def cited_by(number: int) -> list[int]:
    """The places of the papers that the paper at a place cites; none is younger."""
    return sorted({number - 1, number // 2, number // 3} - {number, -1})


def papers_that_cite(papers: Sequence[Paper]) -> list[Paper]:
    """The first papers of the sample, four a year from 2000 on, with a DOI, and with what they cite."""
    chosen = []
    for number, paper in enumerate(papers[:COUNT]):
        metadata: dict[str, Any] = {"year": 2000 + number // 4, "doi": f"10.5555/{paper.paper_id}"}
        if number == NO_YEAR:
            del metadata["year"]
        if number < CITING:
            metadata["cites"] = [papers[place].paper_id for place in cited_by(number)] + ["absent"]
        chosen.append(replace(paper, metadata=metadata))
    return chosen


def without_links(papers: Sequence[Paper]) -> list[Paper]:
    return [
        replace(paper, metadata={key: value for key, value in paper.metadata.items() if key != "cites"})
        for paper in papers
    ]


def index_of(folder: Path, papers: Sequence[Paper], encoder: Path | None, *, bm25: bool = True) -> Path:
    """An index of papers; without an encoder it has postings only. One that is there already is taken."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        vectors = {"dense": False} if encoder is None else {"encoder": str(encoder)}
        build(folder, [corpus(folder.parent, folder.name, papers)], BuildSettings(bm25=bm25, **vectors))
    return folder


def random_heads(seed: int = 0) -> dict[str, Head]:
    random = np.random.default_rng(seed)
    heads = {}
    for known in FEATURE_SETS:
        width = len(known.names)
        shapes = ((width,), (width,), (width, HIDDEN_UNITS), (HIDDEN_UNITS,), (width,), (HIDDEN_UNITS,))
        mean, scale, *weights = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
        parts = (mean, np.abs(scale) + 0.5, *weights)
        heads[known.key] = Head(*(part.astype(np.float64) for part in parts))  # type: ignore[attr-defined]
    return heads


def model_of(encoder: Mapping[str, Any], matrix: np.ndarray | None = None) -> CitationModel:
    """A model whose projection is a matrix, by default the identity, which half precision holds exactly."""
    matrix = np.eye(HIDDEN) if matrix is None else matrix
    projection = Projection(matrix, matrix, np.array([1.0, 2.0, 0.5]))
    return CitationModel(projection, random_heads(), encoder, {"made": "by a test"})


def write_tiny_model(folder: Path, index: Path) -> Path:
    dense = read_manifest(index).dense
    assert dense is not None
    folder.mkdir(parents=True)
    write_model(folder, model_of(dense["encoder"]))
    return folder


def mean_max(left: np.ndarray, right: np.ndarray) -> float:
    """The mean over the vectors on the left of each one's best cosine with one on the right."""
    left, right = (
        each.astype(np.float64) / np.linalg.norm(each.astype(np.float64), axis=1, keepdims=True)
        for each in (left, right)
    )
    return float(np.mean([max(float(a @ b) for b in right) for a in left]))
