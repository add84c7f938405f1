"""Training of a pair reranker for citations, from an index and its citations to a folder that reranks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import UsageError
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.models.cards import ENCODER, TOKENIZER, CrossEncoderMetadata, staged_folder
from qbe.models.export.encoder import export_cross_encoder
from qbe.models.export.pytorch import positions, write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.tokenizer import PaperTokenizer
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import Card, table
from qbe.train.citation.data import read_split
from qbe.train.citation.pairs import (
    PairNetwork,
    PairTask,
    Recipe,
    Sides,
    bm25_candidates,
    chosen_candidates,
    spread,
)
from qbe.train.trainer import Progress, fit, matmul_dtype
from qbe.train.weights import copied, mean
from qbe.util.files import sha256
from qbe.util.parallel import Workers

DEFAULT_RECIPE = Recipe()


def train(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    encoder: str = BASE_ENCODER,
) -> CrossEncoderMetadata:
    """Train a pair reranker, measure it on dev, export it, and write its card.

    ``sources`` are an index with postings, and qrels of who cites whom, to train on and of dev; ``encoder``
    is the name or folder of the BERT-family model to start from. Of several seeds the mean is published:
    weights in the format of Hugging Face, ONNX models, a README. Raises CorpusError for citations of papers
    that the index lacks, ModelError for a model that cannot be read, UsageError for more tokens than it
    reads, IndexFormatError for an index without postings, OutputError where nothing can be written.
    """
    dtype, (name, folder) = matmul_dtype(run.device), find_start(encoder)
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        provenance = begin(
            sources,
            folders,
            run,
            recipe,
            base={"name": name, "weights_sha256": sha256(weights_file(ENCODER, folder))},
            index=reader.manifest.digest,
        )
        write_tokenizer(folder, folders.work / TOKENIZER)
        network = PairNetwork(folder, dtype).to(run.device)
        most = positions(network.model.base_model)
        if recipe.query_tokens + recipe.candidate_tokens > most:
            raise UsageError(
                f"expected `query_tokens` and `candidate_tokens` of together at most {most}, which {name} "
                f"reads, found {recipe.query_tokens} and {recipe.candidate_tokens}"
            )
        task = _task(reader, network, sources, folders.work, recipe, run.threads)
        training = provenance | _fitted(task, recipe, run, folders.work)
        return _publish(network, training, recipe, folders)


def _task(
    reader: IndexReader, network: PairNetwork, sources: Sources, work: Path, recipe: Recipe, threads: int
) -> PairTask:
    """The pairs of train, and candidates of dev."""
    train, dev = (read_split(reader, files[0]) for files in (sources.train, sources.dev))
    with Workers(threads) as workers:
        best = bm25_candidates(reader, workers, train, recipe.candidates)
        queries = {row: dev[row] for row in spread(sorted(dev), recipe.dev_queries)}
        measured = bm25_candidates(reader, workers, queries, recipe.dev_depth)
    sides = Sides(reader, PaperTokenizer(work / TOKENIZER), recipe)
    return PairTask(network, sides, recipe, chosen_candidates(best, recipe.classes), measured)


def _fitted(task: PairTask, recipe: Recipe, run: RunOptions, work: Path) -> dict[str, Any]:
    """Train the network by every seed and leave the mean in it; what is recorded of that."""
    untrained, weights, curves = copied(task.network), [], dict[str, Progress]()
    for seed in run.seeds:
        task.network.load_state_dict(untrained, strict=False)
        curves[f"seed {seed}"] = fit(task, recipe.schedule(), seed, work / f"seed-{seed}.pt")
        weights.append(copied(task.network))
    task.network.load_state_dict(mean(weights), strict=False)
    task.network.eval()
    return {
        "seeds": list(run.seeds),
        "pairs": len(task.pairs),
        "cited": sum(each.is_cited for each in task.pairs),
        "pairs_per_measurement": task.steps_per_epoch * recipe.batch,
        "curves": {name: list(progress.dev) for name, progress in curves.items()},
        "dev": {
            "BM25": task.figures(reranked=False)._asdict(),
            "reranked": task.figures()._asdict(),
        },
    }


def _publish(
    network: PairNetwork, training: Mapping[str, Any], recipe: Recipe, folders: Folders
) -> CrossEncoderMetadata:
    """Write the weights, their export and the card; the folder appears complete or not at all."""
    with staged_folder(folders.output) as staged:
        network.to("cpu").model.save_pretrained(staged)
        (staged / "model.safetensors").chmod(0o644)  # transformers makes it private
        shutil.copyfile(folders.work / TOKENIZER, staged / TOKENIZER)
        exported = staged / "exported"
        metadata = export_cross_encoder(
            staged,
            folders.output.resolve().name,
            f"{training['base']['name']}, trained by qbe on citations",
            exported,
            query_tokens=recipe.query_tokens,
            candidate_tokens=recipe.candidate_tokens,
            training=training,
        )
        for file in exported.iterdir():
            file.replace(staged / file.name)
        exported.rmdir()
        _card(metadata, training, recipe).write(staged)
    return metadata


def _card(metadata: CrossEncoderMetadata, training: Mapping[str, Any], recipe: Recipe) -> Card:
    base, dev = training["base"], training["dev"]
    curves = "; ".join(
        f"{name}: {', '.join(f'{score:.3f}' for score in curve)}"
        for name, curve in training["curves"].items()
    )
    return Card(
        name=metadata.name,
        purpose="Reranks candidates for the bibliography of a paper: the log-odds that it cites a candidate, "
        f"read together (Nogueira et al., BIR 2020), trained from {base['name']} (weights "
        f"{base['weights_sha256'][:12]}) on {training['pairs']:,} pairs, BM25's {recipe.candidates} best of "
        f"each query (classes {recipe.classes}), of which {training['cited'] / training['pairs']:.1%} are "
        "cited.",
        input="title and abstract of query and candidate, of which it reads "
        f"{recipe.query_tokens} and {recipe.candidate_tokens} tokens",
        figures=f"Means over {recipe.dev_queries} queries of dev whose {recipe.dev_depth} best candidates by "
        f"BM25 are reranked. F1@20 after each {training['pairs_per_measurement']:,} pairs, the best of which "
        f"is kept: {curves}.",
        table=table(
            ["order", "F1@20", "MRR", "recall"], ([key, *each.values()] for key, each in dev.items())
        ),
        data=training["data"],
        command=f"citation-pairs --encoder {base['name']} --classes {recipe.classes} --query-tokens "
        f"{recipe.query_tokens} --candidate-tokens {recipe.candidate_tokens} --epochs {recipe.epochs:g} "
        f"--learning-rate {recipe.learning_rate:g} --collection DIR --index DIR",
        limits="Trained on papers of one collection; dev chose when training ended.",
        licence=f"that of {base['name']} and of the training data",
    )
