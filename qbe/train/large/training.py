"""Training of the large encoder and of the facet projections of its vectors, from graded pairs and seeds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.encoder_files import EncoderMetadata
from qbe.models.export.encoder import export_encoder
from qbe.models.export.graph import store_graph
from qbe.models.export.quantization import channel_ranges
from qbe.models.export.staging import staged_folder
from qbe.models.kinds import DIFFERENCE, GRAPH, RANGES, TOKENIZER
from qbe.models.large import MPNET, low_rank, make_weights, model_folder, write_weights
from qbe.models.registry import LARGE_ENCODER
from qbe.models.sources import model_file
from qbe.runs import GradedLists
from qbe.search.projections import ProjectionModel, write_model
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import APACHE, GRADES_LIMITS, Card
from qbe.train.correlation import facet_correlations
from qbe.train.large.network import FACETS, LargeNetwork, PaperTable, table_of
from qbe.train.large.task import LargeRecipe, LargeTask
from qbe.train.projections import FIGURES, figures_table, projections_card, projections_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.papers import Readers, read_graded_papers
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import Weights, copied, with_weights
from qbe.types import Facet, Paper
from qbe.util.files import sha256

DEFAULT_RECIPE = LargeRecipe()
WEIGHTS, PROJECTIONS = "model.safetensors", "projections"
PRECISION = "int8"
"""The precision of the vectors that indexes store."""
SAVE_EVERY = 150
"""Steps between checkpoints, of 1.4 GB each."""
RANGED = 512
"""Papers on which ranges of activations are measured."""
LARGEST = np.finfo(np.float16).max


def train(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: LargeRecipe = DEFAULT_RECIPE
) -> EncoderMetadata:
    """Train the large encoder and its projections, measure them on each file of dev, and publish them: the
    encoder's difference from the base with a card, and in the folder ``projections`` inside the projections.

    ``sources`` are files of graded pairs, the corpus of their papers, and papers to leave out; queries of dev
    are not trained on. The mean of the seeds is published; nothing is selected. Raises FileFormatError for
    pairs and CorpusError for papers that cannot be read, and for pairs that are too few to train on or that
    no correlation can be computed with, ModelError where the base cannot be downloaded or a check fails,
    OutputError where nothing can be written, UsageError for a GPU that does not exist.
    """
    dtype = matmul_dtype(run.device)
    base = model_folder(MPNET)
    readers, digest = Readers.open(run.threads), sha256(base / WEIGHTS)
    provenance = begin(sources, folders, run, recipe, base=digest, **readers.identities)
    lists, dev, papers = read_graded_papers(sources, readers)
    tokenizer, rows = PaperTokenizer(base / TOKENIZER), {name: row for row, name in enumerate(papers)}
    table = read_table(list(papers.values()), tokenizer, recipe.max_tokens).to(run.device)
    network = LargeNetwork(base, dtype).to(run.device)
    untrained = copied(network)

    def task(_: int) -> LargeTask:
        network.load_state_dict(untrained, strict=False)
        return LargeTask(network, table, rows, lists, recipe)

    trained = fit_seeds(task, recipe.schedule(), run.seeds, folders.work, SAVE_EVERY)
    compared: dict[str, Weights] = {MPNET.name: untrained, **trained}
    *_, published = compared
    original = load_file(base / WEIGHTS)
    weights = {name: part.cpu() for name, part in compared[published].items()}
    changed = interpolated_encoder(original, weights, 1.0, "mpnet")
    difference = low_rank(
        {name: part.numpy() for name, part in original.items()},
        {name: part.numpy() for name, part in changed.items() if not torch.equal(part, original[name])},
        recipe.rank,
    )
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(folders.output) as staged:
        write_weights(staged / DIFFERENCE, difference)
        whole, exported = Path(temporary, "whole"), Path(temporary, "exported")
        make_weights(base, staged / DIFFERENCE, whole)
        metadata = export_encoder(whole, LARGE_ENCODER, MPNET.source, exported)
        store_graph(exported / model_file("fp32"), whole / WEIGHTS, staged / GRAPH)
        write_ranges(
            exported / model_file("fp32"),
            papers.values(),
            tokenizer,
            metadata.max_tokens,
            staged / RANGES,
        )
        heads = {name: weights[name] for name in ("weights", "projections")}
        shipped = f"{published}, rank {recipe.rank}"
        compared[shipped] = copied(LargeNetwork(whole, dtype)) | heads
        figures = {
            name: with_weights(network, each, lambda: _measure(network, table, rows, dev))
            for name, each in compared.items()
            if name != published
        }
        training = {
            **json.loads(json.dumps({part: provenance[part] for part in ("recipe", "data")})),
            "seeds": list(run.seeds),
            "pairs": sum(map(len, lists.values())),
        }
        model = ProjectionModel(
            projections_of({"matrices": heads["projections"], "weights": heads["weights"]}),
            {"name": LARGE_ENCODER, "precision": PRECISION, "weights_sha256": metadata.weights_sha256},
            training,
        )
        (staged / PROJECTIONS).mkdir()
        write_model(staged / PROJECTIONS, model)
        projections_card(
            model,
            {name: each.projections for name, each in figures.items()},
            "learned together with the encoder from",
            FIGURES,
            "large-encoder",
        ).write(staged / PROJECTIONS)
        _card(metadata, digest, recipe, model, len(lists), figures).write(staged)
    return metadata


def write_ranges(
    fp32: Path, papers: Iterable[Paper], tokenizer: PaperTokenizer, max_tokens: int, path: Path
) -> None:
    """Measure the ranges of activations on the first RANGED papers, ``max_tokens`` of each, and write
    them, float16.
    """
    windows = (tokenizer.first_window(paper, max_tokens) for paper in islice(papers, RANGED))
    ranges = channel_ranges(fp32, ({"input_ids": np.array([window.ids])} for window in windows))
    write_weights(path, {name: np.minimum(each, LARGEST).astype(np.float16) for name, each in ranges.items()})


def read_table(papers: Sequence[Paper], tokenizer: PaperTokenizer, max_tokens: int) -> PaperTable:
    """Labelled papers, in their order, with their first ``max_tokens``."""
    windows = [tokenizer.first_window(paper, max_tokens) for paper in papers]
    marked = []
    for paper, window in zip(papers, windows, strict=True):
        of_facet = torch.zeros(len(window.spans), FACETS, dtype=torch.bool)
        for place, facet in enumerate(Facet):
            inside = [position for position in paper.facet_positions(facet)[0] if position < len(of_facet)]
            of_facet[inside or slice(None), place] = True
        marked.append(of_facet)
    return table_of([window.ids for window in windows], [window.spans for window in windows], marked)


class _Measured(NamedTuple):
    """Spearman's correlations by facet and file of pairs: by mean-max of the vectors as they are, and of the
    projections' scores.
    """

    vectors: Mapping[str, Sequence[float]]
    projections: Mapping[str, Sequence[float]]


@torch.no_grad()
def _measure(
    network: LargeNetwork, table: PaperTable, rows: Mapping[str, int], dev: Mapping[str, GradedLists]
) -> _Measured:
    vectors: dict[str, Sequence[float]] = {}
    projections: dict[str, Sequence[float]] = {}
    for name, lists in dev.items():
        plain, projected = [], []
        for query, pairs in lists.items():
            some = [rows[paper_id] for paper_id in (query, *(pair.paper_id for pair in pairs))]
            papers = network.encode(table, torch.tensor(some, device=table.ids.device), 4)
            one, others = papers.rows(torch.tensor([0])), papers.rows(torch.arange(1, len(some)))
            grades = [pair.grades for pair in pairs]
            by_sentences = network.terms(one, others, plain=True)[:, 0, 0].T
            plain.append((by_sentences.float().cpu().numpy(), grades))
            projected.append((network.scores(one, others)[0].float().cpu().numpy(), grades))
        vectors[name], projections[name] = facet_correlations(plain), facet_correlations(projected)
    return _Measured(vectors, projections)


def _card(
    metadata: EncoderMetadata,
    base: str,
    recipe: LargeRecipe,
    model: ProjectionModel,
    lists: int,
    figures: Mapping[str, _Measured],
) -> Card:
    return Card(
        name=LARGE_ENCODER,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers): "
        f"{MPNET.name} with all layers trained on {lists:,} graded lists ({model.training['pairs']:,} "
        f"pairs), {recipe.steps} steps of {recipe.queries} lists a seed. The folder holds the difference "
        f"from the base (weights {base[:12]}), of rank {recipe.rank}, which is added to it when it was "
        f"downloaded and verified; the weights that come out are {metadata.weights_sha256[:12]}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"{FIGURES} By mean-max of sentences.",
        table=figures_table({name: each.vectors for name, each in figures.items()}),
        data=model.training["data"],
        command="large-encoder",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {MPNET.source} (same licence)",
    )
