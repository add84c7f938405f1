"""Training of the facet rerankers: the network against transformers, fitting, resuming, the whole of it."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from support.tiny_reranker import MAX_TOKENS, graded_lists, network, stirred, tokenized
from support.trainings import new_folders
from torch import Tensor
from transformers import BertModel

from qbe.errors import CorpusError, ModelError
from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.kinds import TOKENIZER
from qbe.runs import GradedPair
from qbe.train.artifacts import RunOptions
from qbe.train.correlation import spearman
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import Readers, TokenizedPaper, collect_papers, read_graded_papers, tokenize
from qbe.train.reranker.task import CandidateScorer, GradedTask, Recipe
from qbe.train.trainer import fit
from qbe.train.weights import PUBLISHED, best_weights, mean, trainable
from qbe.types import Facet, Paper, Sentence

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


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
    readers = Readers.open(1)
    wanted = {papers[3].paper_id, papers[0].paper_id}
    actual = collect_papers(sample / "corpus.jsonl", wanted, readers)
    assert actual.keys() == wanted
    paper = actual[papers[3].paper_id]
    assert paper.predicted
    assert paper.abstract == papers[3].abstract
    with pytest.raises(CorpusError, match=r"found none of 2, such as absent; give the corpus that the pairs"):
        collect_papers(sample / "corpus.jsonl", {"s001", "nosuch", "absent"}, readers)


# The network against transformers. Heads are stirred, so that no facet is like another.

COUNT = 7
"""A query and six candidates."""


class Vectors(NamedTuple):
    """Of a paper, by a facet: ``mean`` is that of the facet's sentences, which ``facet`` marks."""

    sentences: np.ndarray
    mean: np.ndarray
    whole: np.ndarray
    tokens: np.ndarray
    shares: np.ndarray
    facet: np.ndarray


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
                mask[:, :, begin:, :begin] = ours.gate  # type: ignore[assignment]
                output = layer(both, attention_mask=mask)
                both = output[0] if isinstance(output, tuple) else output
        return both[0, begin:]

    def vectors(self, paper: Paper, states: Tensor, facet: Facet) -> Vectors:
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
        return Vectors(projected[:-2], projected[-2], projected[-1], tokens, powers / powers.sum(), chosen)

    def score(self, query: Paper, candidate: Paper, states: Tensor, facet: Facet) -> float:
        """The formulas of `qbe.train.reranker.network`."""
        asked, found = (
            self.vectors(query, self.states(query)[-1], facet),
            self.vectors(candidate, states, facet),
        )
        cosines = asked.sentences[asked.facet] @ found.sentences.T
        similarities = [
            cosines.max(1).mean(),
            cosines[:, found.facet].max(1).mean(),
            asked.whole @ found.whole,
            asked.mean @ found.mean,
            (asked.tokens @ found.tokens.T).max(1) @ asked.shares,
        ]
        return float(np.dot(self.network.weights[FACETS.index(facet)].tolist(), similarities))


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


def test_what_learns_and_what_does_not(tiny_reranker_weights):
    names = set(trainable(network(tiny_reranker_weights, joint=1)))
    assert {name.split(".")[0] for name in names} == {"upper", "weights", "projections", "token_weights"}
    assert {name.split(".")[1] for name in names if name.startswith("upper")} == {"0"}
    assert "upper.0.gate" in names
    both = set(trainable(network(tiny_reranker_weights, joint=2)))
    assert both - names == {name.replace(".0.", ".1.") for name in names if name.startswith("upper")}


# Parts of fitting.


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
    actual = scorer.correlations({"q1": pairs, "q2": other})
    assert actual[:2] == pytest.approx((0.5, -1))  # of q1 1 and of q2, scored alike, 0; of q2 alone
    assert np.isnan(actual[2])


# Fitting.


@pytest.fixture(scope="module")
def tokenized_sample(tiny_reranker_weights, papers) -> dict[str, TokenizedPaper]:
    return tokenized(tiny_reranker_weights, papers)


@pytest.fixture(scope="module")
def lists() -> dict[str, list[GradedPair]]:
    return dict(list(graded_lists(8).items())[:5])


LEARNING = Recipe(epochs=6, learning_rate=3e-3, head_rate=1e-2, queries=1, ema_decay=0.5)


def copied(model: Network) -> dict[str, Tensor]:
    return {name: part.detach().clone() for name, part in model.named_parameters()}


def test_what_can_be_learned_is_learned(tiny_reranker_weights, tokenized_sample, lists, tmp_path):
    model = network(tiny_reranker_weights)
    scorer, before = CandidateScorer(model, tokenized_sample), copied(model)
    untrained = scorer.correlations(lists)
    task = GradedTask(scorer, lists, LEARNING)
    assert fit(task, LEARNING.schedule(), 0, tmp_path / "checkpoint.pt").step == 6 * len(lists)
    trained = scorer.correlations(lists)
    for now, then in zip(trained, untrained, strict=True):
        assert now > max(then, 0) + 0.2
    changed = {name for name, part in copied(model).items() if not torch.equal(part, before[name])}
    assert changed == set(trainable(model))


# The whole of it.


TRAINED = "reranker"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_best_of_the_seeds_and_their_mean_is_kept(trained):
    (best, dev), work = trained.result, trained.work
    assert names(work) == {"made-from.json", PUBLISHED, "seed-0.pt", "seed-1.pt"}
    assert list(dev) == ["untrained", "seed 0", "seed 1", "mean"]
    assert best == max(["seed 0", "seed 1", "mean"], key=lambda name: sum(dev[name]))
    kept = [best_weights(work / f"seed-{seed}.pt") for seed in (0, 1)]
    assert not torch.equal(kept[0]["weights"], kept[1]["weights"])
    expected = {"seed 0": kept[0], "seed 1": kept[1], "mean": mean(kept)}[best]
    for name, part in best_weights(work / PUBLISHED).items():
        torch.testing.assert_close(part, expected[name])


def test_what_is_evaluated_on_is_not_learned_from(trained):
    data = read_graded_papers(trained.sources, Readers.open(1))
    # Of 4 lists of 8 and a pair with a query of dev: that pair goes, and those with the evaluated paper.
    lists = graded_lists(8)
    queries = sorted(lists)
    evaluated, dev = lists[queries[0]][3].paper_id, set(queries[4:6])
    kept = {
        query: [pair for pair in lists[query] if pair.paper_id not in {evaluated, *dev}]
        for query in queries[:4]
    }
    assert sum(map(len, kept.values())) < 32
    assert evaluated not in queries[:4]
    assert data.train == kept
    assert [each.keys() for each in data.dev.values()] == [dev]


def test_fewer_lists_than_a_step_has(tiny_reranker_weights, lists):
    """No step would be done, and untrained weights published."""
    scorer = CandidateScorer(network(tiny_reranker_weights), {})
    with pytest.raises(CorpusError, match=r"expected at least 99 lists of two or more candidates .*, found"):
        GradedTask(scorer, lists, Recipe(queries=99))


STILL = {"epochs": 1, "learning_rate": 0.0, "head_rate": 0.0, "weight_rate": 0.0}


def test_a_training_goes_on_from_another(trained, tmp_path):
    """With rates of 0 each seed stays where it began: at its own best weights of the earlier training."""
    earlier, one = trained.work, RunOptions((1,))
    _, dev = trained.training.train(new_folders(tmp_path), one, options={"start": earlier}, **STILL)
    began, ended = (best_weights(work / "seed-1.pt") for work in (earlier, tmp_path / "work"))
    for part, weights in began.items():
        torch.testing.assert_close(ended[part], weights, rtol=1e-6, atol=0)
    assert dev["seed 1"] == pytest.approx(trained.result.dev["seed 1"])
    notes = [json.loads((work / "made-from.json").read_text()) for work in (earlier, tmp_path / "work")]
    assert notes[1]["start"] == notes[0]
    with pytest.raises(ModelError, match="work: expected parts of the same recipe and data, found those"):
        trained.training.train(new_folders(tmp_path), **STILL)


def test_what_is_no_start(trained, tmp_path):
    (tmp_path / "start").mkdir()
    with pytest.raises(ModelError, match=r"start: expected the work folder of a training, found no made-fro"):
        trained.training.train(new_folders(tmp_path), options={"start": tmp_path / "start"})
    assert names(tmp_path) == {"start"}
