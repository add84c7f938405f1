"""The large facet encoder: upper layers of MPNet, trained on graded pairs, averaged with the original ones.

Each paper is encoded by itself, and two papers are compared by late interaction, as by the facet rerankers
without their attention to the query. So what is trained is an encoder, whose sentence vectors an index can
store.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.export.encoder import export_encoder
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.graded_pairs import read_graded_pairs
from qbe.models.encoder_files import EncoderMetadata, read_card
from qbe.models.kinds import DIFFERENCE
from qbe.models.large import MPNET, make_weights, model_folder, quantized, write_weights
from qbe.models.registry import BASE_ENCODER, LARGE_ENCODER
from qbe.tag.tagger import Tagger
from qbe.train.facet_encoder.interpolation import interpolated_encoder
from qbe.train.facet_encoder.matching_figures import encode_sentences, measure, significance
from qbe.train.facet_encoder.training import SHARE
from qbe.train.fitting import Checkpoints, matmul_dtype
from qbe.train.graded_pairs import papers_of
from qbe.train.large_encoder.card import describe
from qbe.train.reranker.fit import CandidateScorer, fit
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.recipe import Recipe, Schedule
from qbe.train.reranker.training import Sources, read_data, read_from
from qbe.train.weights import copied, mean
from qbe.train.work_folder import Folders, RunOptions, as_record, check_provenance

log = logging.getLogger(__name__)

RECIPE = Recipe(joint=4, sampled=450, separate=True, schedule=Schedule(learning_rate=3e-5, head_rate=1e-4))
CHECKPOINT_EVERY = 25
WEIGHTS = "model.safetensors"


def train_large_encoder(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = RECIPE
) -> EncoderMetadata:
    """Train the encoder, measure it on dev, and publish its difference from the base with a card.

    Finished parts are kept in the work folder, from which the same call continues. The mean of the seeds is
    published; nothing is selected. Raises FileFormatError for pairs and CorpusError for papers that cannot be
    read, and for pairs that are too few to train on or that no correlation can be computed with, ModelError
    where the base cannot be downloaded or a check fails, OutputError where nothing can be written.
    """
    base = model_folder(MPNET)
    torch.set_num_threads(run.threads)
    reader, tagger = Encoder.open(BASE_ENCODER, threads=run.threads), Tagger.open()
    provenance = {
        "recipe": as_record(recipe),
        "base": sha256(base / WEIGHTS),
        **read_from(sources, reader, tagger),
    }
    check_provenance(folders.work, provenance)
    tokenizer = PaperTokenizer(base / "tokenizer.json")
    data = read_data(sources, reader, tagger, tokenizer, recipe, folders.work)
    network = Network(base, recipe.joint, matmul_dtype(run.device), separate=recipe.separate).to(run.device)
    scorer, untrained, seeds = CandidateScorer(network, data.tokenized), copied(network), []
    for seed in run.seeds:
        network.load_state_dict(dict(untrained), strict=False)
        torch.manual_seed(seed)
        state = Checkpoints(folders.work / f"seed-{seed}.pt", CHECKPOINT_EVERY)
        fit(scorer, data.splits, recipe.schedule, seed, state)
        seeds.append(copied(network))
    original = load_file(base / WEIGHTS)
    changed = interpolated_encoder(original, mean(seeds), SHARE, "mpnet")
    difference = quantized(
        {name: part.numpy() for name, part in original.items()},
        {name: part.numpy() for name, part in changed.items() if not torch.equal(part, original[name])},
    )
    training = provenance | {
        "seeds": list(run.seeds),
        "share": SHARE,
        "pairs": sum(map(len, data.splits.train.values())),
        "lists": len(data.splits.train),
    }
    return _publish(sources, base, difference, training, folders.output, run.threads)


def _publish(
    sources: Sources,
    base: Path,
    difference: Mapping[str, NDArray[Any]],
    training: Mapping[str, Any],
    output: Path,
    threads: int,
) -> EncoderMetadata:
    """Write the difference and the card; the encoder that it makes is exported and measured for that."""
    lists = read_graded_pairs(sources.dev)
    reader = Encoder.open(BASE_ENCODER, threads=threads)
    papers = collect_papers(sources.corpus, papers_of(lists), reader, Tagger.open())
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(output) as staged:
        write_weights(staged / DIFFERENCE, difference)
        trained = Path(temporary, "trained")
        make_weights(base, staged / DIFFERENCE, trained)
        figures = {}
        for name, model in ((MPNET.name, base), (LARGE_ENCODER, trained)):
            exported = Path(temporary, f"{name}-onnx")
            export_encoder(model, name, MPNET.source, exported)
            encoder = Encoder.open(str(exported), "int8", threads)
            figures[name] = measure(encode_sentences(encoder, papers), papers, lists)
            if name == MPNET.name:
                shutil.rmtree(exported)
        metadata = read_card(exported)
        measured = {
            "dev": {name: each.means for name, each in figures.items()},
            "p": significance(figures[LARGE_ENCODER], figures[MPNET.name]),
            "queries": len(lists),
            "weights_sha256": sha256(trained / WEIGHTS),
        }
        size = (staged / DIFFERENCE).stat().st_size
        (staged / "README.md").write_text(describe(metadata, {**training, **measured}, size))
    return metadata
