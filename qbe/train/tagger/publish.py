"""From trained heads to the folder of a tagger: export, measurement of what was exported, model card."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qbe.corpus import read_jsonl
from qbe.encode.encoder import Encoder
from qbe.export.tagger import HeadInputs, export_head
from qbe.files import publish_directory, sha256
from qbe.models.registry import BASE_ENCODER, DEFAULT_TAGGER, ENCODERS
from qbe.models.sources import packaged_weights
from qbe.models.tagger_files import HEAD, TaggerFiles, TaggerMetadata, write_tagger_card
from qbe.tag.tagger import Tagger, span_mask
from qbe.text.split import split_sentences
from qbe.train.tagger.card import describe
from qbe.train.tagger.csabstruct import LABELS, SPLITS, read_csabstruct
from qbe.train.tagger.measure import measure
from qbe.train.tagger.network import Head
from qbe.train.tagger.states import Tokens
from qbe.train.tagger.training import Data, Recipe, train_students
from qbe.train.unlabelled import sample_papers
from qbe.train.work import claim, record

PARITY_PAPERS = 50


def train_tagger(
    csabstruct: Path,
    unlabelled: Path,
    leave_out: Path,
    output: Path,
    work: Path,
    seeds: Sequence[int],
    threads: int,
    *,
    recipe: Recipe = Recipe(),  # noqa: B008 (a tuple, which nobody can change)
    encoder: str = BASE_ENCODER,
    weights: Path | None = None,
) -> TaggerMetadata:
    """Train the facet tagger from files, and publish it.

    ``csabstruct`` is the folder of its splits, ``unlabelled`` a corpus of papers as JSON lines,
    ``leave_out`` one of papers that are evaluated on. Finished parts are kept in ``work``, from where the
    same call goes on. ``encoder`` is the name or folder of the one to read, ``weights`` the folder of its
    PyTorch weights (by default those of the default encoder). Raises CorpusError for data that cannot be
    read, ModelError where a check fails, OutputError where nothing can be written.
    """
    labelled = read_csabstruct(csabstruct)
    evaluated = (paper.title for paper in read_jsonl(leave_out, split_sentences))
    papers = sample_papers(unlabelled, evaluated, recipe.unlabelled, recipe.sample_seed)
    sources = {f"CSAbstruct {split}.jsonl": sha256(csabstruct / f"{split}.jsonl") for split in SPLITS}
    sources[unlabelled.name] = sha256(unlabelled)
    claim(work, {"recipe": record(recipe), "encoder": encoder, "data": sources})
    torch.set_num_threads(threads)
    data = Data(Encoder.open(encoder, threads=threads), recipe, labelled, papers)
    weights = weights or packaged_weights(ENCODERS[BASE_ENCODER])
    return publish(data, recipe, train_students(data, weights, recipe, seeds, work), sources, output)


def publish(
    data: Data, recipe: Recipe, students: Mapping[int, Head], sources: Mapping[str, str], output: Path
) -> TaggerMetadata:
    """Export the student that is best on ``dev``, measure the export on ``test``, and write its folder.

    The folder (ONNX head, card, README.md) appears whole or not at all. Raises ModelError where the
    exported head does not agree with the original.
    """
    seeds = {
        seed: {split: data.scores(split, head) for split in ("dev", "test")}
        for seed, head in students.items()
    }
    best = max(seeds, key=lambda seed: seeds[seed]["dev"].confident)
    output.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    staged.chmod(0o755)
    try:
        readings = [_reading(paper) for paper in data.papers["dev"][:PARITY_PAPERS]]
        parity = export_head(students[best], readings, staged / HEAD)
        chain = students[best].chain
        training: dict[str, Any] = {
            "recipe": record(recipe),
            "seed": best,
            "data": dict(sources),
            "parity": parity,
            "seeds": {
                seed: {split: found.figures for split, found in by_split.items()}
                for seed, by_split in seeds.items()
            },
            "spread": {
                name: statistics.pstdev(getattr(found["test"], name) for found in seeds.values())
                for name in ("micro_f1", "folded")
            },
        }
        card = TaggerMetadata(
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
        measured = measure(data.encoder, Tagger(TaggerFiles(staged, card)), data.labelled["test"])
        training["test"] = measured.figures
        write_tagger_card(staged, card)
        (staged / "README.md").write_text(describe(card, measured, (staged / HEAD).stat().st_size))
        publish_directory(staged, output)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return card


def _reading(paper: Tokens) -> HeadInputs:
    states = np.ascontiguousarray(paper.states.swapaxes(0, 1))
    return HeadInputs(states, span_mask(paper.spans, len(paper.ids)))
