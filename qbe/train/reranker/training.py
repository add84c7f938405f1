"""Training of the facet rerankers, from graded pairs and seeds to what is published."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qbe.corpus import read_jsonl
from qbe.encode.encoder import Encoder
from qbe.export.facet_rerankers import example_inputs, export_facets
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.models.registry import BASE_ENCODER, DEFAULT_RERANKER
from qbe.models.reranker_files import (
    TOKENIZER,
    TRUNK,
    FacetRerankersMetadata,
    RerankerFiles,
    write_reranker_card,
)
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.tag.tagger import Tagger
from qbe.train.checkpoint import best_weights
from qbe.train.device import fast_kind
from qbe.train.graded_pairs import GradedLists, papers_of, read_graded_pairs, without
from qbe.train.reranker.agreement import agreement
from qbe.train.reranker.card import describe
from qbe.train.reranker.fit import Papers, Schedule, fit, spearman
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.reading import Reading, collect
from qbe.train.unlabelled import TitleIndex
from qbe.train.weights import Weights, copied, mean, with_weights
from qbe.train.work import claim, made_from, record
from qbe.types import Facet, Paper

log = logging.getLogger(__name__)


class Sources(NamedTuple):
    """Where the data lie: graded pairs to learn from, those to choose on, the corpus that holds their papers,
    and papers that are evaluated on, which nothing is learned from.
    """

    train: tuple[Path, ...]
    dev: Path
    corpus: Path
    leave_out: Path


class Recipe(NamedTuple):
    """How the rerankers are trained; what was chosen on which data stands in the models' card.

    ``joint`` upper layers learn and let candidates attend to the query; of a paper ``max_tokens`` are read.
    """

    joint: int = 3
    max_tokens: int = 384
    schedule: Schedule = Schedule()


class Data(NamedTuple):
    """Lists to learn from and to choose on, and their papers, as papers and as the network reads them."""

    train: GradedLists
    dev: GradedLists
    papers: Mapping[str, Paper]
    readings: Mapping[str, Reading]


def train_rerankers(
    sources: Sources,
    weights: Path,
    output: Path,
    work: Path,
    seeds: Sequence[int],
    threads: int,
    *,
    recipe: Recipe = Recipe(),  # noqa: B008 (a tuple, which nobody can change)
    facets: Sequence[Facet] = FACETS,
    encoder: str = BASE_ENCODER,
    device: str = "cpu",
    start: Path | None = None,
) -> FacetRerankersMetadata:
    """Train facet rerankers from files, and publish them.

    ``weights`` is the folder of the BERT encoder to start from, ``encoder`` the name or folder of the one
    whose tokenizer and tagger read the papers. ``start`` is the work folder of an earlier training with the
    same seeds, from whose best weights each seed goes on. Finished parts are kept in ``work``, from where
    the same call goes on. Of the seeds and their mean (a "soup"; Wortsman et al., 2022) the best on dev is
    published.
    Raises CorpusError for data that cannot be read, ModelError where a check fails, OutputError where
    nothing can be written.
    """
    read = (*sources.train, sources.dev, sources.corpus)
    digests = {f"{path.parent.name}/{path.name}": sha256(path) for path in read}
    facts = {"recipe": record(recipe), "facets": [facet.value for facet in facets], "data": digests}
    if start is not None:
        facts["start"] = made_from(start)
    claim(work, facts)
    torch.set_num_threads(threads)
    trunk = Encoder.open(encoder, threads=threads)
    data = _read(sources, trunk, recipe, work)
    network = Network(weights, recipe.joint, fast_kind(device)).to(device)
    papers = Papers(network, data.readings)
    untrained = copied(network)
    found: dict[str, Weights] = {}
    for seed in seeds:
        begin = untrained if start is None else best_weights(start / f"seed-{seed}.pt")
        network.load_state_dict(dict(begin), strict=False)
        torch.manual_seed(seed)
        fit(
            network,
            papers,
            data.train,
            data.dev,
            recipe.schedule,
            seed,
            work / f"seed-{seed}.pt",
            facets=facets,
        )
        found[f"seed {seed}"] = copied(network)
    if len(seeds) > 1:
        found["mean"] = mean(list(found.values()))
    network.load_state_dict(dict(untrained), strict=False)
    dev = {"untrained": spearman(network, papers, data.dev)}
    for name, each in found.items():
        dev[name] = with_weights(network, each, lambda: spearman(network, papers, data.dev))
        log.info("%s: dev Spearman %s", name, " / ".join(f"{value:.4f}" for value in dev[name]))
    numbers = [FACETS.index(facet) for facet in facets]
    best = max(found, key=lambda name: sum(dev[name][number] for number in numbers))
    network.load_state_dict(dict(found[best]), strict=False)
    training = facts | {
        "pairs": {
            part: sum(map(len, lists.values())) for part, lists in (("train", data.train), ("dev", data.dev))
        },
        "queries": {"train": len(data.train), "dev": len(data.dev)},
        "shipped": best,
        "dev": dev,
    }
    return publish(network, data, training, trunk.files.tokenizer, recipe.max_tokens, output, threads)


def _read(sources: Sources, encoder: Encoder, recipe: Recipe, work: Path) -> Data:
    dev = read_graded_pairs(sources.dev)
    train: dict[str, Any] = {}
    for path in sources.train:
        train |= read_graded_pairs(path)
    evaluated = TitleIndex(paper.title for paper in read_jsonl(sources.leave_out, lambda text: [text]))
    found = collect(
        sources.corpus,
        papers_of(train, dev),
        encoder,
        Tagger.open(),
        recipe.max_tokens,
        work / "facets.npz",
    )
    seen = frozenset(identity for identity, (paper, _) in found.items() if evaluated.holds(paper.title))
    kept = without(train, seen | frozenset(dev))
    log.info("%d queries to learn from, %d to choose on; %d papers left out", len(kept), len(dev), len(seen))
    papers = {identity: paper for identity, (paper, _) in found.items()}
    return Data(kept, dev, papers, {identity: reading for identity, (_, reading) in found.items()})


def publish(
    network: Network,
    data: Data,
    training: Mapping[str, Any],
    tokenizer: Path,
    max_tokens: int,
    output: Path,
    threads: int,
) -> FacetRerankersMetadata:
    """Export in int8 and in fp32 (into ``fp32`` inside the output), measure both on dev, write the card.

    The folder appears whole or not at all.
    """
    network = network.to("cpu")
    network.kind = torch.float32
    first, shape = data.readings[min(data.readings)], network.shape
    example = example_inputs(
        first.ids.numpy(),
        first.pooling.numpy(),
        (network.joint, shape.heads, shape.dimension // shape.heads),
    )
    names = [TOKENIZER, TRUNK, *(f"{facet}.onnx" for facet in FACETS)]
    heads = {facet.value: network.weights[i].tolist() for i, facet in enumerate(FACETS)}
    measured: dict[str, Any] = {}
    with staged_folder(output) as staged:
        for precision, folder in (("fp32", staged / "fp32"), ("int8", staged)):
            folder.mkdir(exist_ok=True)
            shutil.copyfile(tokenizer, folder / TOKENIZER)
            export_facets(network, folder, TRUNK, example, precision)
            card = FacetRerankersMetadata(
                name=DEFAULT_RERANKER,
                precision=precision,
                max_tokens=max_tokens,
                files={name: sha256(folder / name) for name in names},
                heads=heads,
                training=training,
            )
            measured[precision] = _measure(RerankerFiles(folder, card, precision), data, threads)
            card = dataclasses.replace(card, training={**training, "exported": dict(measured)})
            write_reranker_card(folder, card)
        size = sum((staged / name).stat().st_size for name in names)
        (staged / "README.md").write_text(describe(card, size))
    return card


def _measure(files: RerankerFiles, data: Data, threads: int) -> list[float]:
    """Mean Spearman of the exported models on dev, by facet, in the pass that a search would use."""
    limit = files.metadata.max_tokens
    reranker = FacetCrossEncoder(files, threads, limit, limit)
    return [sum(values.values()) / len(values) for values in agreement(reranker, data.papers, data.dev)]
