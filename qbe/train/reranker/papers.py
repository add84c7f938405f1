"""The papers of graded pairs: read from a corpus, with predicted facets that are cached for the next call."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from qbe.corpus import read_jsonl
from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.errors import CorpusError
from qbe.tag.tagger import Tagger, labelled
from qbe.tag.tagging import TaggingEncoder
from qbe.text.split import split_sentences
from qbe.train.kept import checked, load_arrays, save_arrays
from qbe.types import FacetProbabilities, Paper, Sentence

log = logging.getLogger(__name__)
_WHAT = "the predicted facets"


def collect_papers(
    source: Path, ids: Iterable[str], encoder: Encoder, tagger: Tagger, cache: Path | None = None
) -> dict[str, Paper]:
    """The papers of a corpus with these ids, by id, with predicted facets (see `predict_facets`).

    Raises CorpusError where the corpus lacks some of them.
    """
    missing = set(ids)
    log.info("reading %d papers from %s", len(missing), source)
    unsplit = (paper for paper in read_jsonl(source, lambda text: [text]) if paper.paper_id in missing)
    papers = {paper.paper_id: replace(paper, sentences=_split(paper)) for paper in unsplit}
    missing -= set(papers)
    if missing:
        raise CorpusError(
            f"{source}: expected all papers of the graded pairs, found none of {len(missing)}, such as "
            f"{min(missing)}; give the corpus that the pairs were made from"
        )
    return predict_facets(papers, encoder, tagger, cache)


def _split(paper: Paper) -> tuple[Sentence, ...]:
    return tuple(map(Sentence, split_sentences(paper.abstract)))


def predict_facets(
    papers: Mapping[str, Paper], encoder: Encoder, tagger: Tagger, cache: Path | None = None
) -> dict[str, Paper]:
    """The papers (by id), each sentence with the facet that the tagger predicts.

    Predictions in the file ``cache`` are reused, and new ones are added to it. Raises ModelError where it
    cannot be read.
    """
    known = _load(cache) if cache is not None and cache.exists() else {}
    new = [
        paper for paper_id, paper in papers.items() if len(known.get(paper_id, ())) != len(paper.sentences)
    ]
    log.info("predicting facets of %d papers; those of %d are known", len(new), len(papers) - len(new))
    for paper, _ in TaggingEncoder(encoder, tagger, "predicted").encode(new):
        known[paper.paper_id] = np.array([s.probabilities for s in paper.sentences], np.float32)
    if cache is not None and new:
        _save(cache, known)
    return {
        paper_id: labelled(paper, [FacetProbabilities(*row) for row in known[paper_id].tolist()])
        for paper_id, paper in papers.items()
    }


def _save(path: Path, known: Mapping[str, Floats]) -> None:
    lengths = [len(rows) for rows in known.values()]
    probabilities = np.concatenate(list(known.values()))
    save_arrays(path, {"ids": list(known), "lengths": lengths, "probabilities": probabilities})


def _load(path: Path) -> dict[str, Floats]:
    arrays = load_arrays(path, _WHAT, "ids", "lengths", "probabilities")
    with checked(path, f"{_WHAT} of this training"):
        rows = np.split(arrays["probabilities"], np.cumsum(arrays["lengths"])[:-1])
        return dict(zip(arrays["ids"].tolist(), rows, strict=True))
