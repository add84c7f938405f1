"""Distillation of the facet rerankers, from an index of a larger encoder to the published folder."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qbe.corpus.titles import TitleIndex
from qbe.encode.tokenizer import PaperTokenizer
from qbe.files import sha256
from qbe.graded_pairs import read_graded_pairs
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import FacetRerankersMetadata, resolve_reranker
from qbe.rerank.projection_model import WEIGHTS, find_model, read_model
from qbe.train.distillation.card import describe
from qbe.train.distillation.fit import Papers, fit
from qbe.train.distillation.recipe import Recipe
from qbe.train.distillation.teacher import Teacher
from qbe.train.fitting import Checkpoints, matmul_dtype
from qbe.train.graded_pairs import within
from qbe.train.reranker.correlation import check_dev
from qbe.train.reranker.exported import exported_provenance, exported_weights, off_grid
from qbe.train.reranker.fit import CandidateScorer, GradedSplits
from qbe.train.reranker.network import Network
from qbe.train.reranker.publishing import Data, figures_on_dev, publish
from qbe.train.reranker.tokenized import tokenize
from qbe.train.stored_vectors import StoredVectors
from qbe.train.weights import (
    INTERPOLATED,
    Weights,
    check_share,
    copied,
    interpolated,
    mean,
    save_interpolated,
)
from qbe.train.work_folder import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.types import Paper

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()
SHARE = 0.5
"""The share of the trained weights in those that are published: the middle, as Wortsman et al. advise."""
CHECKPOINT_EVERY = 50
"""After how many steps a checkpoint is written."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is learned from, and measured on.

    ``index`` holds the papers and the vectors of a larger encoder, ``projections`` the folder of the facet
    projections that score these (None: those that ship for that encoder). ``start`` is the name or folder of
    the facet rerankers in int8 that learn, ``weights`` the folder of the BERT encoder that they were trained
    from. ``dev`` are files of graded pairs, the first of which is measured; ``leave_out`` holds papers that
    models are evaluated on.
    """

    index: Path
    dev: tuple[Path, ...]
    leave_out: Path
    weights: Path
    projections: Path | None = None
    start: str = DEFAULT_RERANKER


def distil(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    share: float = SHARE,
) -> FacetRerankersMetadata:
    """Train facet rerankers on the scores of a teacher, measure them on dev, and publish them.

    The queries of dev and papers with a title like that of one in ``leave_out`` are not learned from; of dev
    only what the index holds is measured. Finished parts are kept in the work folder, from which the same
    call continues. Published are weights between those at the start (a ``share`` of 0) and the mean of the
    seeds (1): what was learned of graded pairs before is kept in part (Wortsman et al., *Robust fine-tuning
    of zero-shot models*, CVPR 2022). Raises CorpusError where the index holds nothing of dev that a
    correlation can be computed with, and where it has too few papers to learn from, IndexFormatError for an
    index without vectors, ModelError where a check fails, OutputError where nothing can be written,
    UsageError for vectors that the projections do not read, and for another share. It runs on the CPU.
    """
    check_share(share)
    torch.set_num_threads(run.threads)
    start = resolve_reranker(sources.start, "int8")
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        reader.require_vectors()
        assert reader.manifest.dense is not None
        encoder = reader.manifest.dense["encoder"]
        projections = find_model(encoder, sources.projections)
        provenance = {
            "recipe": as_record(recipe),
            "facets": ["background", "method", "result"],
            "teacher": {
                "encoder": encoder,
                "projections": sha256(projections / WEIGHTS),
                "index": reader.manifest.digest,
            },
            "data": file_digests(*sources.dev, sources.leave_out),
            "start": exported_provenance(start),
        }
        papers = {paper.paper_id: paper for paper in reader}
        ids = list(papers)
        vectors = _vectors(reader, ids)
    lists = [read_graded_pairs(file) for file in sources.dev]
    queries = {query for each in lists for query in each}
    dev = within(lists[0], papers)
    check_dev(dev, sources.dev[0])
    check_provenance(folders.work, provenance)
    tokenizer = PaperTokenizer(start.folder / TOKENIZER)
    tokenized = {name: tokenize(paper, tokenizer, recipe.max_tokens) for name, paper in papers.items()}
    teacher = Teacher(vectors, read_model(projections).projections)
    usable = _usable(papers, queries, TitleIndex.of_corpus(sources.leave_out))
    log.info("learning from %d of %d papers", int(usable.sum()), len(papers))
    network = Network(sources.weights, recipe.joint, matmul_dtype("cpu"), separate=True)
    initial = exported_weights(start, network)
    scorer, drawn = CandidateScorer(network, tokenized), Papers(ids, usable, teacher, recipe)
    weights: dict[str, Weights] = {"start": initial}
    for seed in run.seeds:
        network.load_state_dict(dict(initial), strict=False)
        torch.manual_seed(seed)
        state = Checkpoints(folders.work / f"seed-{seed}.pt", CHECKPOINT_EVERY)
        fit(scorer, drawn, dev, recipe, seed, state)
        weights[f"seed {seed}"] = off_grid(copied(network))
    weights["mean"] = mean([weights[f"seed {seed}"] for seed in run.seeds])
    weights[INTERPOLATED] = interpolated(initial, weights["mean"], share)
    save_interpolated(folders.work, weights[INTERPOLATED])
    network.separate = False
    correlations, crossed = figures_on_dev(scorer, weights, GradedSplits({}, dev))
    network.load_state_dict(dict(weights[INTERPOLATED]), strict=False)
    training: dict[str, Any] = provenance | {
        "papers": int(usable.sum()),
        "queries": {"dev": len(dev)},
        "seeds": list(run.seeds),
        "shipped": INTERPOLATED,
        "share": share,
        "dev": correlations,
        "crossed": crossed,
    }
    data = Data(GradedSplits({}, dev), papers, tokenized)
    files = (start.folder / TOKENIZER, recipe.max_tokens, folders.output, run.threads)
    return publish(network, data, training, *files, describe)


def _vectors(reader: IndexReader, ids: list[str]) -> StoredVectors:
    rows = rows_of(reader.papers, ids)
    return StoredVectors.of_block(reader.vector_store.gather(rows), reader.vector_store.whole(rows))


def _usable(papers: Mapping[str, Paper], queries: Container[str], evaluated: TitleIndex) -> Tensor:
    """Which papers may be learned from (papers,) bool: not the queries of dev, none that is evaluated on."""
    return torch.tensor(
        [name not in queries and not evaluated.holds(paper.title) for name, paper in papers.items()]
    )
