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
from qbe.models.kinds import DIFFERENCE, TOKENIZER
from qbe.models.large import MPNET, make_weights, model_folder, quantized, write_weights
from qbe.models.registry import LARGE_ENCODER
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance
from qbe.train.card import APACHE, GRADES_LIMITS, Card
from qbe.train.correlation import encode_sentences, measure, significance
from qbe.train.facet_encoder import matching_table
from qbe.train.pairs import papers_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.task import CandidateScorer, GradedTask, Recipe
from qbe.train.reranker.training import Readers, Sources, read_data
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import copied, mean

log = logging.getLogger(__name__)

RECIPE = Recipe(joint=4, sampled=450, separate=True, learning_rate=3e-5, head_rate=1e-4)
SHARE = 0.5
"""The share of the trained weights: what Wortsman et al. advise where there is no data to choose it on."""
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
    readers = Readers.open(run.threads)
    provenance = {
        "recipe": as_record(recipe),
        "base": sha256(base / WEIGHTS),
        **readers.provenance(sources),
    }
    check_provenance(folders.work, provenance)
    data = read_data(sources, readers, PaperTokenizer(base / TOKENIZER), recipe, folders.work)
    network = Network(base, recipe.joint, matmul_dtype(run.device), separate=recipe.separate).to(run.device)
    scorer, untrained = CandidateScorer(network, data.tokenized), copied(network)

    def task(_: int) -> GradedTask:
        network.load_state_dict(untrained, strict=False)
        return GradedTask(scorer, data.splits, recipe)

    seeds = fit_seeds(task, recipe.schedule(), run.seeds, folders.work, CHECKPOINT_EVERY)
    original = load_file(base / WEIGHTS)
    changed = interpolated_encoder(original, mean(list(seeds.values())), SHARE, "mpnet")
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
    return _publish(sources, base, difference, training, folders.output, readers)


def _publish(
    sources: Sources,
    base: Path,
    difference: Mapping[str, NDArray[Any]],
    training: Mapping[str, Any],
    output: Path,
    readers: Readers,
) -> EncoderMetadata:
    """Write the difference and the card; the encoder that it makes is exported and measured for that."""
    lists = read_graded_pairs(sources.dev)
    papers = collect_papers(sources.corpus, papers_of(lists), readers.encoder, readers.tagger)
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(output) as staged:
        write_weights(staged / DIFFERENCE, difference)
        trained = Path(temporary, "trained")
        make_weights(base, staged / DIFFERENCE, trained)
        figures = {}
        for name, model in ((MPNET.name, base), (LARGE_ENCODER, trained)):
            exported = Path(temporary, f"{name}-onnx")
            export_encoder(model, name, MPNET.source, exported)
            encoder = Encoder.open(str(exported), "int8", readers.threads)
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
        _card(metadata, {**training, **measured}).write(staged)
    return metadata


def _card(metadata: EncoderMetadata, training: Mapping[str, Any]) -> Card:
    """The card; ``training`` is collected by `train_large_encoder`."""
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers): "
        f"{MPNET.name} with its last {training['recipe']['joint']} layers trained on {training['lists']:,} "
        f"graded lists and averaged with the original weights, share {training['share']:g}. The folder holds "
        f"the difference from the base (weights {training['base'][:12]}), which is downloaded and verified; "
        f"the weights that come out are {training['weights_sha256'][:12]}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {training['queries']} queries, by "
        f"matching of sentences; int8 (smallest cosine with PyTorch "
        f"{metadata.parity['int8']['min_cosine']:.3f}). Difference to {MPNET.name} by mean-max: two-sided p "
        f"of the paired randomization test {training['p']:.2g}.",
        table=matching_table(training["dev"], training["dev"]),
        data=training["data"],
        command="large-encoder",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {MPNET.source} (same licence)",
    )
