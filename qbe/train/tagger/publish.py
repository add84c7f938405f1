"""From files to the folder of a tagger: training, export, evaluation of the exported model, model card."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.export.staging import staged_folder
from qbe.export.tagger import HeadInputs, export_head
from qbe.files import sha256
from qbe.models.registry import BASE_ENCODER, DEFAULT_TAGGER, ENCODERS
from qbe.models.sources import packaged_weights
from qbe.models.tagger_files import HEAD, TaggerFiles, TaggerMetadata, write_tagger_card
from qbe.tag.tagger import Tagger, span_mask
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.train.tagger.card import describe
from qbe.train.tagger.csabstruct import LABELS, SPLITS, read_csabstruct
from qbe.train.tagger.measure import measure
from qbe.train.tagger.network import Head
from qbe.train.tagger.scores import Scores
from qbe.train.tagger.states import Tokens
from qbe.train.tagger.training import Data, Recipe, train_students
from qbe.train.unlabelled import sample_papers

DEFAULT_RECIPE = Recipe()
PARITY_PAPERS = 50
"""Papers of dev on which the exported model is compared with PyTorch."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The folder of CSAbstruct's splits, a corpus of unlabelled papers as JSON lines, and one of papers that
    models are evaluated on, which are excluded from training.
    """

    csabstruct: Path
    unlabelled: Path
    leave_out: Path


def train_tagger(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    encoder: str = BASE_ENCODER,
    weights: Path | None = None,
) -> TaggerMetadata:
    """Train the facet tagger from files, and publish it.

    Finished parts are kept in the work folder, from which the same call continues. ``encoder`` is the name or
    folder of the encoder whose states the tagger reads, ``weights`` the folder of its PyTorch weights (by
    default those of the base encoder). Training runs on the CPU. Raises CorpusError for data that cannot be
    read, ModelError where a check fails, OutputError where nothing can be written.
    """
    labelled = read_csabstruct(sources.csabstruct)
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    papers = sample_papers(sources.unlabelled, evaluated, recipe.unlabelled, recipe.sample_seed)
    digests = {f"CSAbstruct {split}.jsonl": sha256(sources.csabstruct / f"{split}.jsonl") for split in SPLITS}
    digests[sources.unlabelled.name] = sha256(sources.unlabelled)
    provenance = {
        "recipe": as_record(recipe),
        "encoder": encoder,
        "data": digests,
        "leave_out": file_digests(sources.leave_out),
    }
    check_provenance(folders.work, provenance)
    torch.set_num_threads(run.threads)
    data = Data(Encoder.open(encoder, threads=run.threads), recipe, labelled, papers)
    weights = weights or packaged_weights(ENCODERS[BASE_ENCODER])
    students = train_students(data, weights, recipe, run.seeds, folders.work)
    return publish(data, recipe, students, digests, folders.output)


def publish(
    data: Data, recipe: Recipe, students: Mapping[int, Head], digests: Mapping[str, str], output: Path
) -> TaggerMetadata:
    """Export the student that is best on dev, evaluate the exported model on test, and write its folder.

    The folder (ONNX head, card, README.md) appears complete or not at all. ``digests`` are those of the data.
    Raises ModelError where the exported head does not agree with the original.
    """
    seeds = {
        seed: {split: data.scores(split, head) for split in ("dev", "test")}
        for seed, head in students.items()
    }
    best = max(seeds, key=lambda seed: seeds[seed]["dev"].confident)
    with staged_folder(output) as staged:
        parity = export_head(students[best], _parity_inputs(data.papers["dev"]), staged / HEAD)
        chain = students[best].chain
        training: dict[str, Any] = {
            "recipe": as_record(recipe),
            "seed": best,
            "data": dict(digests),
            "parity": parity,
            **_figures(seeds),
        }
        metadata = TaggerMetadata(
            name=DEFAULT_TAGGER,
            labels=LABELS,
            trunk={
                "name": data.encoder.files.metadata.name,
                "weights_sha256": data.encoder.files.metadata.weights_sha256,
            },
            layers=recipe.layers,
            begin=chain.begin.tolist(),
            end=chain.end.tolist(),
            transitions=chain.transitions.tolist(),
            files={HEAD: sha256(staged / HEAD)},
            training=training,
        )
        scores = measure(data.encoder, Tagger(TaggerFiles(staged, metadata)), data.labelled["test"])
        training["test"] = scores.figures
        write_tagger_card(staged, metadata)
        (staged / "README.md").write_text(describe(metadata, scores, (staged / HEAD).stat().st_size))
    return metadata


def _figures(seeds: Mapping[int, Mapping[str, Scores]]) -> dict[str, Any]:
    """The scores of each seed, and their standard deviation on test."""
    return {
        "seeds": {
            seed: {split: scores.figures for split, scores in splits.items()}
            for seed, splits in seeds.items()
        },
        "spread": {
            name: statistics.pstdev(getattr(splits["test"], name) for splits in seeds.values())
            for name in ("micro_f1", "folded")
        },
    }


def _parity_inputs(papers: Sequence[Tokens]) -> list[HeadInputs]:
    return [
        HeadInputs(
            np.ascontiguousarray(paper.states.swapaxes(0, 1)),
            span_mask(paper.spans, len(paper.ids)),
        )
        for paper in papers[:PARITY_PAPERS]
    ]
