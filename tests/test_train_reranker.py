"""Training of the facet rerankers: the network against transformers, fitting, resuming, the whole of it."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support import killed_fit
from support.killed_fit import EVERY, LISTS, SCHEDULE, small_fit
from support.rerankers import score
from support.tiny_reranker import MAX_TOKENS, graded_lists, network, stirred, tokenized, write_lists
from torch import Tensor
from transformers import BertModel

from qbe.corpus import write_jsonl
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import CorpusError, MissingDependencyError, ModelError, UsageError
from qbe.files import sha256
from qbe.graded_pairs import GradedPair
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.models.reranker_files import RERANKER_CARD, TRUNK, read_reranker_card, resolve_reranker
from qbe.query import Query
from qbe.rerank import facet_cross_encoder
from qbe.rerank.open import open_reranker
from qbe.tag.tagger import Tagger
from qbe.train import options as train_options
from qbe.train.__main__ import main
from qbe.train.facet_encoder import training as facet_encoder
from qbe.train.fitting import Checkpoints, lr_factor
from qbe.train.graded_pairs import papers_of
from qbe.train.options import parser
from qbe.train.reranker.correlation import spearman
from qbe.train.reranker.exported import off_grid
from qbe.train.reranker.fit import (
    CandidateScorer,
    GradedSplits,
    crossed_shares,
    fit,
    mean_spearman,
    sample_unrelated,
    score_lists,
)
from qbe.train.reranker.loss import LOSSES
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.recipe import Recipe, Schedule
from qbe.train.reranker.tokenized import TokenizedPaper, tokenize
from qbe.train.reranker.training import Sources, Start, train_rerankers
from qbe.train.weights import mean, trainable, with_weights
from qbe.train.work_folder import Folders, RunOptions
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.usefixtures("one_thread")


# What the network reads.

LONG = Paper(
    "long",
    "A title",
    (
        Sentence("One two three.", Facet.METHOD),
        Sentence("Four.", Facet.BACKGROUND),
        Sentence("Five six.", Facet.METHOD),
        Sentence("This one is cut off.", Facet.RESULT),
    ),
    labelled=True,
)


def test_reading_a_paper(tiny_reranker_weights):
    """[CLS] a title | first two three . | four . | five six . | [SEP], and no room for more."""
    tokenizer = PaperTokenizer(tiny_reranker_weights / TOKENIZER)
    actual = tokenize(LONG, tokenizer, 14)
    words = ["a title", "one two three.", "four.", "five six."]
    ids = [number for text in words for number in tokenizer.ids(text)]
    assert actual.ids.tolist() == [tokenizer.special.cls, *ids, tokenizer.special.sep]
    assert actual.sentences == 3
    assert [chosen.tolist() for chosen in actual.facets] == [[1], [0, 2], [0, 1, 2]]
    first, four, five = [0] * 3 + [1] * 4 + [0] * 6, [0] * 7 + [1] * 2 + [0] * 4, [0] * 9 + [1] * 3 + [0]
    method, every = np.add(first, five), np.add(np.add(first, four), five)  # no result was read: all stand in
    rows = [first, four, five, four, method, every, [1] * 13]
    np.testing.assert_allclose(actual.pooling.numpy(), [np.divide(row, sum(row)) for row in rows], atol=1e-6)
    for number, row in enumerate((four, method, every)):
        assert actual.facet_tokens(number).tolist() == [bool(value) for value in row]


def test_papers_are_collected_with_their_facets_predicted(papers, sample):
    encoder, tagger = Encoder.open(), Tagger.open()
    wanted = {papers[3].paper_id, papers[0].paper_id}
    actual = collect_papers(sample / "corpus.jsonl", wanted, encoder, tagger)
    assert actual.keys() == wanted
    paper = actual[papers[3].paper_id]
    assert paper.predicted
    assert paper.abstract == papers[3].abstract
    with pytest.raises(CorpusError, match=r"found none of 2, such as absent; give the corpus that the pairs"):
        collect_papers(sample / "corpus.jsonl", {"s001", "nosuch", "absent"}, encoder, tagger)


# The network against transformers. Heads are stirred, so that no facet is like another.

COUNT = 7
"""A query and six candidates."""


class Reference:
    """BERT in transformers, whose states are averaged and compared by the formulas of late interaction."""

    def __init__(self, folder: Path, network: Network) -> None:
        options = {"add_pooling_layer": False, "attn_implementation": "eager"}
        self.bert = BertModel.from_pretrained(folder, **options).eval()
        self.tokenizer = PaperTokenizer(folder / TOKENIZER)
        self.network = network

    def states(self, paper: Paper) -> tuple[Tensor, ...]:
        """States (tokens, dimension) of a paper read alone, of the embeddings and behind each layer."""
        ids = self.tokenizer.first_window(paper, MAX_TOKENS).ids
        with torch.inference_mode():
            output = self.bert(torch.tensor([ids]), output_hidden_states=True)
        return tuple(states[0] for states in output.hidden_states)

    def below(self, paper: Paper) -> Tensor:
        return self.states(paper)[len(self.network.lower)]

    def jointly(self, query: Paper, candidate: Paper) -> Tensor:
        """Final states of a candidate that sees the query: both in one sequence, under a mask by hand."""
        both = torch.cat([self.below(query), self.below(candidate)])[None]
        begin = len(self.below(query))
        first = len(self.network.lower)
        with torch.inference_mode():
            for layer, ours in zip(self.bert.encoder.layer[first:], self.network.upper, strict=True):
                mask = torch.zeros(1, len(ours.gate), both.shape[1], both.shape[1])
                mask[:, :, :begin, begin:] = -1e9
                mask[:, :, begin:, :begin] = ours.gate
                output = layer(both, attention_mask=mask)
                both = output[0] if isinstance(output, tuple) else output
        return both[0, begin:]

    def vectors(self, paper: Paper, states: Tensor, facet: Facet) -> facet_cross_encoder.Vectors:
        spans = self.tokenizer.first_window(paper, MAX_TOKENS).spans
        number = FACETS.index(facet)
        chosen = np.array([paper.sentences[place].facet is facet for place in range(len(spans))])
        numbers = states.double().numpy()
        inside = np.zeros(len(numbers), bool)
        for keep, (begin, end) in zip(chosen, spans, strict=True):
            inside[begin:end] = keep
        rows = [numbers[begin:end].mean(0) for begin, end in spans]
        rows += [numbers[inside].mean(0), numbers.mean(0)]
        projected = np.array(rows) @ self.network.projections[number].detach().double().numpy().T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        powers = np.exp(numbers @ self.network.token_weights[number].detach().double().numpy()) * inside
        tokens = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
        return facet_cross_encoder.Vectors(
            projected[:-2], projected[-2], projected[-1], tokens, powers / powers.sum(), chosen
        )

    def score(self, query: Paper, candidate: Paper, states: Tensor, facet: Facet) -> float:
        return facet_cross_encoder.score(
            self.vectors(query, self.states(query)[-1], facet),
            self.vectors(candidate, states, facet),
            self.network.weights[FACETS.index(facet)].tolist(),
        )


@pytest.mark.parametrize("attention", ["shut", "open"])
def test_scores_are_those_of_transformers(tiny_reranker_weights, papers, attention):
    """With the gates shut, papers are read as by plain BERT; open, each candidate sees the query."""
    model = stirred(tiny_reranker_weights)
    if attention == "shut":
        for layer in model.upper:
            layer.gate.data.fill_(-1e9)
    reference = Reference(tiny_reranker_weights, model)
    query, *candidates = papers[:COUNT]
    expected = []
    for paper in candidates:
        states = reference.states(paper)[-1] if attention == "shut" else reference.jointly(query, paper)
        expected.append([reference.score(query, paper, states, facet) for facet in FACETS])
    below = [reference.below(paper) for paper in papers[:COUNT]]
    with torch.inference_mode():
        actual = model(list(tokenized(tiny_reranker_weights, papers[:COUNT]).values()), below)
    assert np.std(expected, axis=0).min() > 0.05
    np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-4)


def test_an_untrained_network_is_the_encoders_own_late_interaction(tiny_reranker_weights, papers):
    """No facet has learned anything yet: equal weights, no projection, tokens that count alike."""
    model = network(tiny_reranker_weights)
    for layer in model.upper:
        assert layer.gate.flatten().tolist() == [-4, -4]
        layer.gate.data.fill_(-1e9)
    reference = Reference(tiny_reranker_weights, model)
    query, *candidates = papers[:3]
    three = list(tokenized(tiny_reranker_weights, papers[:3]).values())
    with torch.inference_mode():
        actual = model(three, [reference.below(paper) for paper in papers[:3]])
    for row, paper in zip(actual.tolist(), candidates, strict=True):
        for value, facet in zip(row, FACETS, strict=True):
            pair = [reference.vectors(each, reference.states(each)[-1], facet) for each in (query, paper)]
            assert np.ptp(pair[0].shares[pair[0].shares > 0]) < 1e-9
            assert value == pytest.approx(4 * facet_cross_encoder.features(*pair).sum(), abs=1e-4)


def test_the_lower_layers_are_read_once_in_half_precision(tiny_reranker_weights, papers):
    model = network(tiny_reranker_weights)
    reference = Reference(tiny_reranker_weights, model)
    scorer = CandidateScorer(model, tokenized(tiny_reranker_weights, papers[:20]))
    for paper in papers[:20]:
        states = scorer.frozen_states(paper.paper_id)
        assert states.dtype is torch.bfloat16
        assert scorer.frozen_states(paper.paper_id) is states
        expected = reference.below(paper).numpy()
        # Eight bits, and what single precision may round to the other side.
        np.testing.assert_allclose(states.float().numpy(), expected, rtol=2**-8, atol=1e-5)


def test_what_learns_and_what_does_not(tiny_reranker_weights):
    names = set(trainable(network(tiny_reranker_weights, joint=1)))
    assert {name.split(".")[0] for name in names} == {"upper", "weights", "projections", "token_weights"}
    assert {name.split(".")[1] for name in names if name.startswith("upper")} == {"0"}
    assert "upper.0.gate" in names
    both = set(trainable(network(tiny_reranker_weights, joint=2)))
    assert both - names == {name.replace(".0.", ".1.") for name in names if name.startswith("upper")}


# Parts of fitting.


def test_the_learning_rate_goes_up_and_down():
    assert [lr_factor(step, 20) for step in (0, 1, 2, 11, 19)] == pytest.approx([0.5, 1, 1, 0.5, 1 / 18])
    assert [lr_factor(step, 1) for step in (0, 1)] == [1, 0]
    rates = [lr_factor(step, 97) for step in range(97)]
    assert 0 < min(rates) <= max(rates) == 1
    assert rates == [*sorted(rates[:9]), *sorted(rates[9:], reverse=True)]


def test_unrelated_candidates_are_sampled():
    related = [GradedPair("a", (0, 1, 0)), GradedPair("b", (3, 0, 0))]
    none = [GradedPair(f"n{number}", (0.5, 0, 0.5)) for number in range(6)]
    pairs = [none[0], related[0], *none[1:4], related[1], *none[4:]]
    assert sample_unrelated(pairs, 6, random.Random(1)) == pairs
    assert sample_unrelated(pairs, 0, random.Random(1)) == related
    drawn = [sample_unrelated(pairs, 2, random.Random(seed)) for seed in range(40)]
    assert all(len(kept) == 4 and kept == [pair for pair in pairs if pair in kept] for kept in drawn)
    assert set().union(*drawn) == set(pairs)
    assert sample_unrelated(pairs, 2, random.Random(7)) == sample_unrelated(pairs, 2, random.Random(7))


def test_correlations():
    assert spearman([0.1, 0.3, 0.2], [1, 3, 2]) == pytest.approx(1)
    assert spearman([3, 2, 1], [0, 0, 2]) == pytest.approx(-np.sqrt(3) / 2)
    assert spearman([1, 1, 1], [0, 1, 2]) == 0
    assert spearman([1, 2, 3], [1, 1, 1]) is None


class FixedScorer(CandidateScorer):
    """A scorer with given scores."""

    def __init__(self, scores: dict[str, list[list[float]]]) -> None:
        self._scores = scores

    def scores(self, query, pairs):
        return torch.tensor(self._scores[query])


def test_a_mean_passes_over_queries_of_one_grade():
    pairs = [GradedPair("a", (0, 1, 2)), GradedPair("b", (1, 1, 2))]
    scorer = FixedScorer({"q1": [[1.0, 1, 1], [2.0, 2, 2]], "q2": [[2.0, 1, 1], [2.0, 2, 2]]})
    other = [GradedPair("a", (0, 1, 2)), GradedPair("b", (1, 0, 2))]
    actual = spearman_of(scorer, {"q1": pairs, "q2": other})
    assert actual[:2] == pytest.approx((0.5, -1))  # of q1 1 and of q2, scored alike, 0; of q2 alone
    assert np.isnan(actual[2])


def test_weights_are_lent_and_given_back(tiny_reranker_weights):
    model = network(tiny_reranker_weights)
    lent = {"weights": torch.zeros(3, 5)}
    assert with_weights(model, lent, lambda: model.weights.sum().item()) == 0
    assert model.weights.sum().item() == 60
    with pytest.raises(ZeroDivisionError):
        with_weights(model, lent, lambda: 1 / 0)
    assert model.weights.sum().item() == 60


# Fitting.


@pytest.fixture(scope="module")
def tokenized_sample(tiny_reranker_weights, papers) -> dict[str, TokenizedPaper]:
    return tokenized(tiny_reranker_weights, papers)


@pytest.fixture(scope="module")
def lists() -> dict[str, list[GradedPair]]:
    return dict(list(graded_lists(8).items())[:5])


LEARNING = Schedule(epochs=6, learning_rate=3e-3, head_rate=1e-2, queries=1, ema_decay=0.5, patience=6)


def copied(model: Network) -> dict[str, Tensor]:
    return {name: part.detach().clone() for name, part in model.named_parameters()}


def test_what_can_be_learned_is_learned(tiny_reranker_weights, tokenized_sample, lists, tmp_path):
    model = network(tiny_reranker_weights)
    scorer, before = CandidateScorer(model, tokenized_sample), copied(model)
    untrained = spearman_of(scorer, lists)
    progress = fit(scorer, GradedSplits(lists, lists), LEARNING, 0, Checkpoints(tmp_path / "checkpoint.pt"))
    trained = spearman_of(scorer, lists)
    assert progress.step == 6 * len(lists)
    assert len(progress.dev) == 6
    assert np.mean(trained) == pytest.approx(max(progress.dev))
    for now, then in zip(trained, untrained, strict=True):
        assert now > max(then, 0) + 0.2
    changed = {name for name, part in copied(model).items() if not torch.equal(part, before[name])}
    assert changed == set(trainable(model))


def test_one_facet_alone_is_learned(tiny_reranker_weights, tokenized_sample, lists, tmp_path):
    model = network(tiny_reranker_weights)
    scorer, before = CandidateScorer(model, tokenized_sample), copied(model)
    schedule = replace(LEARNING, epochs=2)
    checkpoints, splits = Checkpoints(tmp_path / "checkpoint.pt"), GradedSplits(lists, lists)
    progress = fit(scorer, splits, schedule, 0, checkpoints, facets=[Facet.METHOD])
    for name in ("weights", "projections", "token_weights"):
        moved = (copied(model)[name] - before[name]).abs().flatten(1).max(1).values
        assert moved[1] > 1e-3
        assert max(moved[0], moved[2]) < 1e-5  # the running mean rounds
    assert spearman_of(scorer, lists)[1] == pytest.approx(max(progress.dev))


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_each_loss_can_be_fitted(tiny_reranker_weights, tokenized_sample, lists, tmp_path, loss):
    two = {query: pairs[:4] for query, pairs in list(lists.items())[:2]}
    model = network(tiny_reranker_weights)
    scorer = CandidateScorer(model, {name: tokenized_sample[name] for name in papers_of(two)})
    before, schedule = copied(model), replace(LEARNING, epochs=1, loss=loss)
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    assert fit(scorer, GradedSplits(two, two), schedule, 0, checkpoints).step == 2
    after = copied(model)
    assert all(torch.isfinite(part).all() for part in after.values())
    assert not torch.equal(after["weights"], before["weights"])


def turned(lists: dict[str, list[GradedPair]]) -> dict[str, list[GradedPair]]:
    """The same lists, with what was best the worst."""
    return {
        query: [GradedPair(pair.paper_id, tuple(3 - grade for grade in pair.grades)) for pair in pairs]
        for query, pairs in lists.items()
    }


def test_training_stops_when_dev_gets_no_better(tiny_reranker_weights, tokenized_sample, lists, tmp_path):
    """Learning the lists can but harm the same lists turned round; the best epoch's weights are kept."""
    schedule = replace(LEARNING, epochs=9, patience=2)
    model = network(tiny_reranker_weights)
    scorer = CandidateScorer(model, tokenized_sample)
    splits = GradedSplits(lists, turned(lists))
    progress = fit(scorer, splits, schedule, 0, Checkpoints(tmp_path / "checkpoint.pt"))
    best = progress.dev.index(max(progress.dev))
    assert len(progress.dev) == best + 3 < 9
    assert progress.step == len(progress.dev) * len(lists)
    assert np.mean(spearman_of(scorer, turned(lists))) == pytest.approx(max(progress.dev))


def test_a_figure_that_stays_is_no_better(tiny_reranker_weights, tokenized_sample, lists, tmp_path):
    still = replace(LEARNING, learning_rate=0.0, head_rate=0.0, weight_rate=0.0, patience=2)
    two = {query: pairs[:3] for query, pairs in list(lists.items())[:2]}
    model = network(tiny_reranker_weights)
    scorer = CandidateScorer(model, tokenized_sample)
    checkpoints = Checkpoints(tmp_path / "checkpoint.pt")
    progress = fit(scorer, GradedSplits(two, lists), still, 0, checkpoints)
    assert len(progress.dev) == 3
    assert len(set(progress.dev)) == 1


# Checkpoints.


@pytest.fixture(scope="module")
def uninterrupted(tiny_reranker_weights, tmp_path_factory):
    """The network and the progress of a small fit that nothing stopped, and its checkpoint."""
    checkpoint = tmp_path_factory.mktemp("fit") / "checkpoint.pt"
    return *small_fit(tiny_reranker_weights, checkpoint), checkpoint


def same(first: Network, second: Network) -> bool:
    ours, theirs = copied(first), copied(second)
    return all(torch.equal(part, theirs[name]) for name, part in ours.items())


def alike(first: Path, second: Path) -> bool:
    """Whether two checkpoints hold the same numbers to the last bit."""
    ours, theirs = (torch.load(path, weights_only=True) for path in (first, second))
    parts = [
        torch.equal(part, theirs[kind][name])
        for kind in ("network", "mean", "best")
        for name, part in ours[kind].items()
    ]
    parts += [
        torch.equal(state[name], theirs["optimizer"]["state"][number][name])
        for number, state in ours["optimizer"]["state"].items()
        for name in ("exp_avg", "exp_avg_sq", "step")
    ]
    return all(parts) and all(ours[name] == theirs[name] for name in ("step", "dev"))


def test_an_interrupted_fit_ends_in_the_same_weights(tiny_reranker_weights, uninterrupted, tmp_path):
    model, progress, whole = uninterrupted
    assert progress.step == SCHEDULE.epochs * LISTS == 9
    checkpoint = tmp_path / "checkpoint.pt"
    for steps, more in ((2, 2), (6, 4)):  # within the first epoch; at the end of the second
        _, actual = small_fit(tiny_reranker_weights, checkpoint, stop_after=more)
        assert actual.step == steps
        assert not alike(checkpoint, whole)
    again, actual = small_fit(tiny_reranker_weights, checkpoint)
    assert actual == progress
    assert same(again, model)
    assert alike(checkpoint, whole)


def test_a_killed_fit_ends_in_the_same_weights(tiny_reranker_weights, uninterrupted, tmp_path):
    model, progress, whole = uninterrupted
    checkpoint = tmp_path / "checkpoint.pt"
    command = [sys.executable, killed_fit.__file__, tiny_reranker_weights, checkpoint]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert torch.load(checkpoint, weights_only=True)["step"] == EVERY
    assert len([*tmp_path.glob(".checkpoint.pt.*.partial")]) == 1
    again, actual = small_fit(tiny_reranker_weights, checkpoint)
    assert actual == progress
    assert same(again, model)
    assert alike(checkpoint, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_finished_fit_is_not_done_again(tiny_reranker_weights, uninterrupted, monkeypatch):
    model, progress, checkpoint = uninterrupted

    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    before = sha256(checkpoint)
    again, actual = small_fit(tiny_reranker_weights, checkpoint)
    assert actual == progress
    assert same(again, model)
    assert sha256(checkpoint) == before


@pytest.mark.parametrize("harm", ["cut", "empty", "no checkpoint", "other things", "another network"])
def test_checkpoints_that_cannot_be_read(tiny_reranker_weights, uninterrupted, tmp_path, harm):
    content = uninterrupted[2].read_bytes()
    checkpoint = tmp_path / "seed-1.pt"
    if harm == "other things":
        torch.save({"weights": torch.zeros(2)}, checkpoint)
    elif harm == "another network":
        state = torch.load(uninterrupted[2], weights_only=True)
        state["network"]["weights"] = torch.zeros(3, 4)
        torch.save(state, checkpoint)
    else:
        checkpoint.write_bytes({"cut": content[:2000], "empty": b"", "no checkpoint": b"not one"}[harm])
    message = r"seed-1\.pt: expected a checkpoint of this training, found: .+; delete it, or give another `wo"
    with pytest.raises(ModelError, match=message) as caught:
        small_fit(tiny_reranker_weights, checkpoint)
    assert "\n" not in str(caught.value)


# The whole of it.

TINY = Recipe(joint=2, max_tokens=128, schedule=replace(LEARNING, epochs=2))
ONNX = {f"{facet}.onnx" for facet in Facet}


@pytest.fixture(scope="module")
def sources(tmp_path_factory, sample, papers) -> Sources:
    """Lists to learn from in two files, others to choose on, and a candidate that is evaluated on."""
    folder = tmp_path_factory.mktemp("pairs")
    lists = graded_lists(8)
    queries = sorted(lists)
    parts = {"first": queries[:2], "second": queries[2:4], "dev": queries[4:6]}
    paths = {
        name: write_lists(folder / f"{name}.tsv", {query: lists[query] for query in chosen})
        for name, chosen in parts.items()
    }
    with (folder / "second.tsv").open("a") as stream:
        stream.write(f"{queries[2]}\t{queries[4]}\t1\t2\t3\n")  # a query of dev
    candidate = lists[queries[0]][3].paper_id
    (evaluated,) = (paper for paper in papers if paper.paper_id == candidate)
    with (folder / "evaluated.jsonl").open("wb") as stream:
        write_jsonl([replace(evaluated, paper_id="other", title=evaluated.title.upper())], stream)
    return Sources(
        (paths["first"], paths["second"]), paths["dev"], sample / "corpus.jsonl", folder / "evaluated.jsonl"
    )


def spearman_of(scorer: CandidateScorer, lists) -> tuple[float, ...]:
    return mean_spearman(score_lists(scorer, lists), lists)


def train(sources: Sources, weights: Path, output: Path, work: Path, earlier: Path | None = None, **options):
    start = Start(weights, earlier=earlier)
    run = RunOptions((0, 1), 1)
    return train_rerankers(sources, start, Folders(output, work), run, **{"recipe": TINY, **options})


@pytest.fixture(scope="module")
def trained(tmp_path_factory, sources, tiny_reranker_weights):
    """The folder of rerankers, their card, and the work folder; trained with two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    card = train(sources, tiny_reranker_weights, folder / "rerankers", folder / "work")
    return folder / "rerankers", card, folder / "work"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_trained_is_a_folder_of_rerankers(trained):
    folder, card, work = trained
    files = {*ONNX, TRUNK, TOKENIZER, RERANKER_CARD}
    assert names(folder) == {*files, "README.md", "fp32"}
    assert names(folder / "fp32") == files
    assert names(folder.parent) == {"rerankers", "work"}
    assert names(work) == {"facets.npz", "made-from.json", "seed-0.pt", "seed-1.pt"}
    assert read_reranker_card(folder) == read_card(card)
    assert (card.precision, read_reranker_card(folder / "fp32").precision) == ("int8", "fp32")
    for each, precision in ((folder, "int8"), (folder / "fp32", "fp32")):
        actual = resolve_reranker(str(each), precision)
        actual.verify()
        assert actual.metadata.max_tokens == TINY.max_tokens
    sizes = [(each / TRUNK).stat().st_size for each in (folder, folder / "fp32")]
    assert sizes[0] < 0.5 * sizes[1]


def read_card(card):
    """A card as it comes back from its file."""
    lists = {facet: list(weights) for facet, weights in card.heads.items()}
    return replace(card, heads=lists, training=json.loads(json.dumps(card.training)))


def test_the_best_of_the_seeds_and_their_mean_ships(trained):
    _, card, work = trained
    dev = card.training["dev"]
    assert list(dev) == ["untrained", "seed 0", "seed 1", "mean"]
    best = max(["seed 0", "seed 1", "mean"], key=lambda name: sum(dev[name]))
    assert card.training["shipped"] == best
    kept = [torch.load(work / f"seed-{seed}.pt", weights_only=True)["best"] for seed in (0, 1)]
    assert not torch.equal(kept[0]["weights"], kept[1]["weights"])
    for row, facet in zip(shipped(card, work)["weights"].tolist(), Facet, strict=True):
        assert card.heads[facet.value] == pytest.approx(row, rel=1e-6)


def shipped(card, work: Path) -> dict[str, Tensor]:
    """The weights that were published, from the checkpoints."""
    kept = [torch.load(work / f"seed-{seed}.pt", weights_only=True)["best"] for seed in (0, 1)]
    mean = {name: (part + kept[1][name]) / 2 for name, part in kept[0].items()}
    return {"seed 0": kept[0], "seed 1": kept[1], "mean": mean}[card.training["shipped"]]


def test_figures_are_those_of_the_exported_models(trained, sources, tiny_reranker_weights):
    folder, card, work = trained
    lists = graded_lists(8)
    dev = {query: lists[query] for query in sorted(lists)[4:6]}
    encoder = Encoder.open(BASE_ENCODER)
    collected = collect_papers(sources.corpus, papers_of(dev), encoder, Tagger.open())
    budget = {"query_tokens": TINY.max_tokens, "candidate_tokens": TINY.max_tokens}
    model = network(tiny_reranker_weights, TINY.joint)
    model.load_state_dict(shipped(card, work), strict=False)
    scorer = CandidateScorer(
        model,
        {name: tokenize(paper, encoder.tokenizer, TINY.max_tokens) for name, paper in collected.items()},
    )
    with torch.inference_mode():
        expected = {query: scorer.scores(query, pairs).numpy() for query, pairs in dev.items()}
    for precision, place in (("fp32", folder / "fp32"), ("int8", folder)):
        reranker = open_reranker(str(place), precision=precision, **budget)
        for number, facet in enumerate(Facet):
            figures = []
            for query, pairs in dev.items():
                candidates = [collected[pair.paper_id] for pair in pairs]
                scores = [each.score for each in score(reranker, Query(collected[query], facet), candidates)]
                figures.append(spearmanr(scores, [pair.grades[number] for pair in pairs]).statistic)
                if precision == "fp32":  # in training the lower layers' states are of half precision
                    np.testing.assert_allclose(scores, expected[query][:, number], rtol=0, atol=0.05)
            assert card.training["exported"][precision][number] == pytest.approx(np.mean(figures))
    assert list(card.training["exported"]) == ["fp32", "int8"]


def test_what_is_evaluated_on_is_not_learned_from(trained, sources):
    _, card, _ = trained
    training = card.training
    # Of 4 lists of 8 and a pair with a query of dev: that pair goes, and those with the evaluated paper.
    lists = graded_lists(8)
    queries = sorted(lists)
    evaluated, dev = lists[queries[0]][3].paper_id, set(queries[4:6])
    kept = [
        (query, pair.paper_id)
        for query in queries[:4]
        for pair in lists[query]
        if pair.paper_id not in {evaluated, *dev}
    ]
    assert len(kept) < 32
    assert evaluated not in queries[:4]
    assert training["pairs"] == {"train": len(kept), "dev": 16}
    assert training["queries"] == {"train": 4, "dev": 2}
    files = (*sources.train, sources.dev, sources.corpus)
    assert training["data"] == {f"{path.parent.name}/{path.name}": sha256(path) for path in files}


def test_the_readme_has_the_cards_figures(trained):
    folder, card, _ = trained
    text = " ".join((folder / "README.md").read_text().split())
    training = card.training
    for name, row in (training["dev"] | training["exported"]).items():
        cells = [*row, sum(row) / 3]
        assert f"| {name} | " + " | ".join(f"{value:.3f}" for value in cells) + " |" in text
    for facet, row in card.heads.items():
        assert f"| {facet} | " + " | ".join(f"{value:.2f}" for value in row) + " |" in text
    assert all(f"{name}: SHA-256 {digest}" in text for name, digest in training["data"].items())
    size = sum((folder / name).stat().st_size for name in card.files)
    assert f"(int8, {size / 1e6:.1f} MB in all)" in text
    assert f"Published: {training['shipped']}, the best on dev." in text
    assert f"4 graded lists ({training['pairs']['train']} pairs)" in text
    assert "at most 2 epochs" in text


def test_finished_seeds_are_not_trained_again_and_end_in_the_same_files(
    trained, sources, tiny_reranker_weights, tmp_path, monkeypatch
):
    _, card, work = trained

    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    assert train(sources, tiny_reranker_weights, tmp_path / "again", work) == card


def test_a_work_folder_serves_one_recipe(trained, sources, tiny_reranker_weights, tmp_path):
    _, _, work = trained
    slower = replace(TINY, schedule=replace(TINY.schedule, learning_rate=1e-3))
    fewer = replace(sources, train=sources.train[:1])
    others = replace(sources, leave_out=sources.corpus)
    for data, options in (
        (sources, {"recipe": slower}),
        (fewer, {}),
        (others, {}),
        (sources, {"facets": [Facet.METHOD]}),
    ):
        with pytest.raises(ModelError, match="work: expected parts of the same recipe and data, found those"):
            train(data, tiny_reranker_weights, tmp_path / "out", work, **options)
    other = Start(tiny_reranker_weights, encoder=DEFAULT_ENCODER)  # facets would be other ones
    with pytest.raises(ModelError, match="work: expected parts of the same recipe and data, found those"):
        train_rerankers(sources, other, Folders(tmp_path / "out", work), RunOptions((0, 1), 1), recipe=TINY)
    assert not any(tmp_path.iterdir())


def test_the_note_says_what_facets_were_predicted_by_and_what_was_left_out(trained, sources):
    _, card, work = trained
    note = json.loads((work / "made-from.json").read_text())
    left_out = sources.leave_out
    assert note["leave_out"] == {f"{left_out.parent.name}/{left_out.name}": sha256(left_out)}
    assert note["encoder"] == Encoder.open(BASE_ENCODER).files.identity
    assert note["tagger"] == Tagger.open().identity
    assert {key: json.loads(json.dumps(card.training[key])) for key in note} == note


def test_fewer_lists_than_a_step_has(sources, tiny_reranker_weights, tmp_path):
    """No step would be done, and untrained weights published."""
    two = replace(TINY, lists=1, schedule=replace(TINY.schedule, queries=2))
    with pytest.raises(CorpusError) as caught:
        train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", recipe=two)
    assert str(caught.value) == (
        "expected at least 2 lists of two or more candidates to train on, found 1; give more pairs"
    )
    assert not (tmp_path / "out").exists()
    assert names(tmp_path / "work") == {"facets.npz", "made-from.json"}


def test_grades_of_dev_that_are_all_equal(sources, tiny_reranker_weights, tmp_path):
    """No correlation could choose an epoch, nor measure what is published: said before anything is read."""
    lists = {"s036": [GradedPair("s051", (0.0, 1.0, 3.0)), GradedPair("s059", (0.0, 2.0, 3.0))]}
    dev = write_lists(tmp_path / "dev.tsv", lists)
    data = replace(sources, dev=dev)
    with pytest.raises(CorpusError) as caught:
        train(data, tiny_reranker_weights, tmp_path / "out", tmp_path / "work")
    assert str(caught.value) == (
        f"{dev}: expected a query with two different grades for each facet, found none for background, "
        "result; give more pairs as `dev`"
    )
    assert names(tmp_path) == {"dev.tsv", "work"}
    assert names(tmp_path / "work") == {"made-from.json"}


def test_a_facet_encoder_is_not_measured_on_grades_that_are_all_equal(
    trained, sources, tiny_reranker_weights, tmp_path
):
    lists = {"s036": [GradedPair("s051", (0.0, 1.0, 3.0)), GradedPair("s059", (0.0, 2.0, 0.0))]}
    dev = write_lists(tmp_path / "dev.tsv", lists)
    folders, run = Folders(tmp_path / "out", trained[2]), RunOptions((0, 1), 1)
    data = facet_encoder.Sources(dev, sources.corpus)
    with pytest.raises(CorpusError, match=r"dev\.tsv: expected a query .* found none for background; give"):
        facet_encoder.make_facet_encoder(data, tiny_reranker_weights, folders, run)
    assert names(tmp_path) == {"dev.tsv"}


def test_a_training_goes_on_from_another(trained, sources, tiny_reranker_weights, tmp_path):
    """With rates of 0 each seed stays where it began: at its own best weights of the earlier training."""
    earlier = trained[2]
    still = replace(TINY.schedule, epochs=1, learning_rate=0.0, head_rate=0.0, weight_rate=0.0)
    options = {"recipe": replace(TINY, schedule=still), "earlier": earlier}
    card = train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", **options)
    for name in ("seed-0.pt", "seed-1.pt"):
        began, ended = (torch.load(work / name, weights_only=True) for work in (earlier, tmp_path / "work"))
        for part, weights in began["best"].items():
            torch.testing.assert_close(ended["best"][part], weights, rtol=1e-6, atol=0)
    assert card.training["dev"] == {
        name: pytest.approx(row) for name, row in trained[1].training["dev"].items()
    }
    assert card.training["start"] == json.loads((earlier / "made-from.json").read_text())
    with pytest.raises(ModelError, match="work: expected parts of the same recipe and data, found those"):
        options["earlier"] = None
        train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", **options)


def test_a_training_goes_on_from_exported_rerankers(trained, sources, tiny_reranker_weights, tmp_path):
    """With rates of 0 every seed stays at the published weights, which int8 holds to half a step."""
    folder, published, work = trained
    still = replace(TINY.schedule, epochs=1, learning_rate=0.0, head_rate=0.0, weight_rate=0.0)
    options = {"recipe": replace(TINY, schedule=still), "earlier": folder}
    card = train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", **options)
    seeds = [torch.load(work / f"seed-{seed}.pt", weights_only=True)["best"] for seed in (0, 1)]
    shipped = published.training["shipped"]
    expected = mean(seeds) if shipped == "mean" else seeds[int(shipped[-1])]
    for name in ("seed-0.pt", "seed-1.pt"):
        ended = torch.load(tmp_path / "work" / name, weights_only=True)["best"]
        assert ended.keys() == expected.keys()
        for part, weights in expected.items():
            largest = weights.abs().amax(-1, keepdim=True) if weights.ndim > 1 else weights.abs()
            assert ((ended[part] - weights).abs() <= largest / 127 + 1e-6).all(), part
    assert card.training["start"]["data"] == published.training["data"]


def test_weights_are_interpolated_with_those_at_the_start(trained, sources, tiny_reranker_weights, tmp_path):
    """The published score weights lie a quarter of the way from the start to the mean of the seeds."""
    folder, published, _ = trained
    start = Start(tiny_reranker_weights, earlier=folder, share=0.25)
    folders = Folders(tmp_path / "out", tmp_path / "work")
    card = train_rerankers(sources, start, folders, RunOptions((0, 1), 1), recipe=TINY)
    seeds = [torch.load(tmp_path / "work" / f"seed-{n}.pt", weights_only=True)["best"] for n in (0, 1)]
    ended = mean(seeds)["weights"]
    assert (card.training["shipped"], card.training["share"]) == ("interpolated", 0.25)
    for number, facet in enumerate(FACETS):
        began = torch.tensor(published.heads[facet.value])
        expected = 0.75 * began + 0.25 * ended[number]
        assert card.heads[facet.value] == pytest.approx(expected.tolist(), rel=1e-5)
    assert "0.25 of it" in (tmp_path / "out" / "README.md").read_text()
    for share, earlier in ((0.5, None), (0.5, trained[2]), (0.0, folder), (1.5, folder)):
        with pytest.raises(UsageError, match="`share`"):
            Start(tiny_reranker_weights, earlier=earlier, share=share)


def test_small_changes_survive_the_next_export():
    """A row on the grid of int8, changed by a fifth of a step: off the grid, rounding keeps the change."""
    generator = torch.Generator().manual_seed(0)
    step = 1 / 127
    integers = torch.randint(-126, 127, (1, 4000), generator=generator).float()
    integers[0, 0] = 127
    changed = integers * step + 0.2 * step

    def rounded(row: torch.Tensor) -> torch.Tensor:
        scale = row.abs().max() / 127
        return torch.round(row / scale) * scale

    kept = [(rounded(row) - integers * step)[0, 1:].mean() / step for row in (changed, cut(changed))]
    assert kept[0].abs() < 0.05
    assert kept[1] == pytest.approx(0.2, abs=0.03)


def cut(row: torch.Tensor) -> torch.Tensor:
    return off_grid({"upper.0.up_weight": row})["upper.0.up_weight"]


def test_only_int8_rerankers_are_a_start(trained, sources, tiny_reranker_weights, tmp_path):
    with pytest.raises(UsageError, match=r"expected precision fp32, the only one of .*, found int8"):
        train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", trained[0] / "fp32")


def test_crossed_pairs_are_in_the_card(trained, sources):
    """Shares by the scores of dev, worked by hand: x is better by method, y by background and by result."""
    lists = {"q": [GradedPair("x", (0.0, 2.0, 0.0)), GradedPair("y", (1.0, 0.5, 1.0))]}
    scores = {"q": np.array([[0.75, 0.5, 0.25], [0.25, 0.25, 0.25]])}
    shares = crossed_shares(scores, lists)
    assert list(shares) == ["method-background", "method-result"]
    assert shares["method-background"] == (1.0, 0.0, 0.0, 1)
    assert shares["method-result"] == (1.0, 0.5, 0.5, 1)
    folder, card, _ = trained
    assert list(card.training["crossed"]) == list(card.training["dev"])
    scopes = next(iter(card.training["crossed"].values()))
    text = (folder / "README.md").read_text()
    assert all(f"{int(count):,} {scope}" in " ".join(text.split()) for scope, (*_, count) in scopes.items())


def test_a_training_that_is_not_there_is_no_start(sources, tiny_reranker_weights, tmp_path):
    (tmp_path / "start").mkdir()
    (tmp_path / "work").mkdir()
    with pytest.raises(ModelError, match=r"start: expected the work folder of a training, found no made-fro"):
        train(sources, tiny_reranker_weights, tmp_path / "out", tmp_path / "work", tmp_path / "start")
    assert not any((tmp_path / "work").iterdir())


def test_a_failed_export_publishes_nothing(trained, sources, tiny_reranker_weights, tmp_path, monkeypatch):
    from qbe.train.reranker import publishing

    def refused(*_):
        raise ModelError("no export")

    monkeypatch.setattr(publishing, "export_facets", refused)
    with pytest.raises(ModelError, match="no export"):
        train(sources, tiny_reranker_weights, tmp_path / "out", trained[2])
    assert not any(tmp_path.iterdir())


# The command.


@pytest.fixture
def calls(monkeypatch, trained):
    """What the command asks of the training, which is not done."""
    recorded = []

    def called(*arguments, **options):
        recorded.append((arguments, options))
        return trained[1]

    monkeypatch.setattr("qbe.train.reranker.training.train_rerankers", called)
    return recorded


ARGUMENTS = ["reranker", "--output", "out", "--work", "work", "--threads", "2"]


def test_the_command_finds_its_data_and_says_what_came_out(tmp_path, monkeypatch, capsys, calls, trained):
    from qbe.models.registry import BASE_ENCODER, ENCODERS
    from qbe.models.sources import packaged_weights
    from qbe.train.graded_pairs import PAIRS_FOLDER

    monkeypatch.setenv("QBE_DATA", str(tmp_path))
    main(ARGUMENTS)
    copy = tmp_path / "pairs"
    copy.mkdir()
    for name in ("train-2.tsv", "train.tsv", "dev-2.tsv"):
        (copy / name).touch()
    files = f"--pairs a.tsv {copy} --dev c.tsv --corpus d.jsonl --leave-out e.jsonl"
    others = "--facet result --loss margin --epochs 3 --seeds 4 --device cuda --start f"
    others += " --lists 7 --blended 0.25 --crossed 2"
    main([*ARGUMENTS, *files.split(), *others.split()])
    judgments = tmp_path / "facet-judgments"
    names = ("train.tsv", "train-2.tsv", "train-3.tsv", "train-4.tsv", "train-5.tsv", "train-6.tsv")
    default = Sources(
        (judgments / "train.tsv", *(PAIRS_FOLDER / name for name in names)),
        judgments / "dev.tsv",
        tmp_path / "arxiv-cs" / "arxiv-cs.jsonl.xz",
        tmp_path / "csfcube" / "abstracts-csfcube-preds.jsonl",
    )
    given = Sources(
        (Path("a.tsv"), copy / "train.tsv", copy / "train-2.tsv"),
        Path("c.tsv"),
        Path("d.jsonl"),
        Path("e.jsonl"),
    )
    weights, folders = packaged_weights(ENCODERS[BASE_ENCODER]), Folders(Path("out"), Path("work"))
    assert calls == [
        (
            (default, Start(weights), folders, RunOptions((0, 1, 2), 2)),
            {"recipe": Recipe(), "facets": list(Facet)},
        ),
        (
            (given, Start(weights, earlier="f"), folders, RunOptions((4,), 2, "cuda")),
            {
                "recipe": Recipe(
                    lists=7, blended=0.25, schedule=Schedule(epochs=3, loss="margin", crossed=2.0)
                ),
                "facets": [Facet.RESULT],
            },
        ),
    ]
    figures = " / ".join(f"{value:.3f}" for value in trained[1].training["exported"]["int8"])
    line = f"out: Spearman {figures} on dev (background / method / result)\n"
    assert capsys.readouterr().out == 2 * line


def test_usage_errors_of_the_command(monkeypatch, calls):
    monkeypatch.delenv("QBE_DATA", raising=False)
    for wrong, message in (
        (["--epochs", "0"], "expected `epochs` of at least 1, found 0"),
        (["--seeds", "1,x"], "expected seeds such as 0,1,2, found '1,x'; check `seeds`"),
        ([], "expected `dev`, or QBE_DATA set to a folder that holds facet-judgments/dev.tsv, found neither"),
        (["--dev", "x", "--corpus", "y", "--leave-out", "z"], "expected `pairs`, or QBE_DATA set to"),
    ):
        with pytest.raises(UsageError, match=message):
            main([*ARGUMENTS, *wrong])
    assert not calls


def test_an_installation_has_no_graded_pairs(tmp_path, monkeypatch, calls):
    monkeypatch.setattr("qbe.train.graded_pairs.PAIRS_FOLDER", tmp_path / "none")
    monkeypatch.setenv("QBE_DATA", str(tmp_path))
    with pytest.raises(
        UsageError, match=r"expected the graded pairs in data/graded-pairs .*found no such fo"
    ):
        main(ARGUMENTS)
    with pytest.raises(UsageError, match=r"expected train\*\.tsv in the folder, found none; check `pairs`"):
        main([*ARGUMENTS, "--pairs", str(tmp_path)])
    assert not calls


def test_choices_and_defaults_of_the_command_are_those_of_its_modules():
    """They are written out in the options, which may not load the modules for the help."""
    assert tuple(LOSSES) == train_options.LOSSES
    assert tuple(map(str, Facet)) == train_options.FACETS
    options = parser().parse_args(ARGUMENTS)
    assert (options.loss, options.epochs) == (Schedule().loss, Schedule().epochs)
    assert options.seeds == ",".join(map(str, RunOptions().seeds))
    with pytest.raises(SystemExit):
        parser().parse_args([*ARGUMENTS, "--loss", "hinge"])


def test_training_without_torch_names_the_packages(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("qbe.train.reranker.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    paths = ["--dev", "x", "--corpus", "y", "--leave-out", "z", "--pairs", "p"]
    with pytest.raises(MissingDependencyError, match=r"found no torch; run: pip install 'qbe\[train\]'"):
        main([*ARGUMENTS, *paths])
