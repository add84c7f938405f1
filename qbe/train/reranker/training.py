"""Training of the facet rerankers, from graded pairs and seeds to the published folder."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import UsageError
from qbe.graded_pairs import read_graded_pairs
from qbe.models.registry import BASE_ENCODER
from qbe.models.reranker_files import (
    FacetRerankersMetadata,
    RerankerFiles,
    resolve_reranker,
)
from qbe.tag.tagger import Tagger
from qbe.train.fitting import Checkpoints, matmul_dtype
from qbe.train.graded_pairs import most_crossed, papers_of, without
from qbe.train.reranker.blending import with_blends
from qbe.train.reranker.card import describe
from qbe.train.reranker.correlation import check_dev
from qbe.train.reranker.exported import exported_provenance, exported_weights, is_exported, off_grid
from qbe.train.reranker.fit import (
    CandidateScorer,
    GradedSplits,
    fit,
)
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.publishing import Data, figures_on_dev, publish
from qbe.train.reranker.recipe import Recipe
from qbe.train.reranker.tokenized import tokenize
from qbe.train.weights import (
    INTERPOLATED,
    Weights,
    best_weights,
    check_share,
    copied,
    interpolated,
    mean,
    save_interpolated,
)
from qbe.train.work_folder import (
    Folders,
    RunOptions,
    as_record,
    check_provenance,
    file_digests,
    read_provenance,
)
from qbe.types import Facet

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()
CHECKPOINT_EVERY = 100
"""After how many steps a checkpoint is written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """Files of graded pairs to train on and of dev, of the corpus that holds their papers, and of papers that
    models are evaluated on, which are excluded from training.
    """

    train: tuple[Path, ...]
    dev: Path
    corpus: Path
    leave_out: Path


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """What training starts from.

    ``weights`` is the folder of a BERT encoder, ``encoder`` the name or folder of the one whose tokenizer and
    tagger read the papers. ``earlier`` is the work folder of a finished training with the same seeds: each
    seed starts from its best weights there; or the name or folder of trained rerankers in int8, whose
    weights all seeds start from. With these last, and a ``share`` below 1, what is published are weights
    between theirs (0) and the mean of the seeds (1). Raises UsageError for a ``share`` that is none, and for
    one without rerankers to interpolate with.
    """

    weights: Path
    encoder: str = BASE_ENCODER
    earlier: str | Path | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        """Raise UsageError for a share that cannot be used."""
        check_share(self.share)
        if self.share < 1 and not (self.earlier and is_exported(self.earlier)):
            raise UsageError(
                f"expected trained rerankers as `start` with `share` {self.share:g}, found "
                f"{self.earlier or 'none'}; weights are interpolated with theirs"
            )


def train_rerankers(
    sources: Sources,
    start: Start,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    facets: Sequence[Facet] = FACETS,
) -> FacetRerankersMetadata:
    """Train facet rerankers on the grades of ``facets``, and publish them.

    Finished parts are kept in the work folder, from which the same call continues. Of the seeds and their
    mean (a "soup"; Wortsman et al., 2022) the best on dev is published. Raises FileFormatError
    for pairs and CorpusError for papers that cannot be read, and for pairs that are too few to train on or
    that no correlation can be computed with, ModelError where a check fails, OutputError where nothing can be
    written, UsageError for a GPU that does not exist.
    """
    torch.set_num_threads(run.threads)
    encoder, tagger = Encoder.open(start.encoder, threads=run.threads), Tagger.open()
    provenance = {
        "recipe": as_record(recipe),
        "facets": [facet.value for facet in facets],
        **read_from(sources, encoder, tagger),
    }
    checkpoints, exported = _earlier(start.earlier)
    if checkpoints is not None:
        provenance["start"] = read_provenance(checkpoints)
    if exported is not None:
        provenance["start"] = exported_provenance(exported)
    check_provenance(folders.work, provenance)
    data = read_data(sources, encoder, tagger, encoder.tokenizer, recipe, folders.work)
    network = Network(start.weights, recipe.joint, matmul_dtype(run.device), separate=recipe.separate).to(
        run.device
    )
    scorer = CandidateScorer(network, data.tokenized)
    untrained = copied(network)
    initial = untrained if exported is None else exported_weights(exported, network)
    weights: dict[str, Weights] = {}
    for seed in run.seeds:
        if checkpoints is not None:
            initial = best_weights(checkpoints / f"seed-{seed}.pt")
        network.load_state_dict(dict(initial), strict=False)
        torch.manual_seed(seed)
        state = Checkpoints(folders.work / f"seed-{seed}.pt", CHECKPOINT_EVERY)
        fit(scorer, data.splits, recipe.schedule, seed, state, facets=facets)
        weights[f"seed {seed}"] = copied(network)
    average = mean(list(weights.values()))
    if len(run.seeds) > 1:
        weights["mean"] = average
    if start.share < 1:
        weights[INTERPOLATED] = interpolated(initial, average, start.share)
    if exported is not None:
        weights = {name: off_grid(trained) for name, trained in weights.items()}
    save_interpolated(folders.work, weights.get(INTERPOLATED))
    dev, crossed = figures_on_dev(scorer, {"untrained": untrained, **weights}, data.splits)
    numbers = [FACETS.index(facet) for facet in facets]
    best = INTERPOLATED
    if best not in weights:
        best = max(weights, key=lambda name: sum(dev[name][number] for number in numbers))
    network.load_state_dict(dict(weights[best]), strict=False)
    training = provenance | {
        "pairs": {part: sum(map(len, lists.values())) for part, lists in data.splits._asdict().items()},
        "queries": {part: len(lists) for part, lists in data.splits._asdict().items()},
        "shipped": best,
        **({"share": start.share} if start.share < 1 else {}),
        "dev": dev,
        "crossed": crossed,
    }
    output = folders.output
    return publish(
        network, data, training, encoder.files.tokenizer, recipe.max_tokens, output, run.threads, describe
    )


def _earlier(start: str | Path | None) -> tuple[Path | None, RerankerFiles | None]:
    """The work folder, or else the trained rerankers, that ``start`` names; (None, None) for None."""
    if start is None:
        return None, None
    if is_exported(start):
        return None, resolve_reranker(str(start), "int8")
    return Path(start), None


def read_from(sources: Sources, encoder: Encoder, tagger: Tagger) -> dict[str, Any]:
    """What `read_data` reads, for the note in the work folder: digests of the files, and the identities of
    the models by which facets are predicted.
    """
    return {
        "data": file_digests(*sources.train, sources.dev, sources.corpus),
        "leave_out": file_digests(sources.leave_out),
        "encoder": encoder.files.identity,
        "tagger": tagger.identity,
    }


def read_data(
    sources: Sources,
    encoder: Encoder,
    tagger: Tagger,
    tokenizer: PaperTokenizer,
    recipe: Recipe,
    work: Path,
) -> Data:
    """Graded lists and their papers, tokenized by ``tokenizer``; their facets, predicted by ``tagger`` in the
    states of ``encoder``, are cached in the folder ``work``. Raises FileFormatError for pairs and CorpusError
    for papers that cannot be read, and for pairs of dev that no correlation can be computed with.
    """
    dev = read_graded_pairs(sources.dev)
    check_dev(dev, sources.dev)
    train: dict[str, Any] = {}
    for path in sources.train:
        train |= read_graded_pairs(path)
    train = without(train, frozenset(dev))
    if recipe.lists is not None:
        train = dict(most_crossed(train, recipe.lists))
    if recipe.sampled is not None:
        chosen = random.Random(0).sample(sorted(train), min(recipe.sampled, len(train)))
        train = {query: train[query] for query in chosen}
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    papers = collect_papers(sources.corpus, papers_of(train, dev), encoder, tagger, work / "facets.npz")
    excluded = frozenset(paper_id for paper_id, paper in papers.items() if evaluated.holds(paper.title))
    train = without(train, excluded)
    log.info("%d queries in training, %d in dev; %d papers left out", len(train), len(dev), len(excluded))
    train, papers = with_blends(train, papers, recipe.blended)
    tokenized = {
        paper_id: tokenize(paper, tokenizer, recipe.max_tokens) for paper_id, paper in papers.items()
    }
    return Data(GradedSplits(train, dev), papers, tokenized)
