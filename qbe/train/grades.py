"""Training of the grade model, a small network over comparisons of papers, and of its technique words."""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qbe.corpus.reading import read_corpus
from qbe.corpus.sentences import split_sentences
from qbe.index.reader import IndexReader
from qbe.models.cards import OUTPUTS, Doubles, GradeModel, Head, mean_head, write_model
from qbe.models.words import FILE, SHIPPED, TechniqueWords, shipped_words, terms_of
from qbe.query import HIGHEST
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.search.grading import FEATURES, Features, stored_vectors
from qbe.search.projections import WEIGHTS, find_model, read_model
from qbe.search.rank import GradedQuery
from qbe.train.fit import Schedule, Task, fit, shuffled
from qbe.train.losses import FACETS, as_asked, grade_loss
from qbe.train.network import Standardization, as_array
from qbe.train.pairs import encoder_of, file_label, papers_of, within, without_evaluated
from qbe.train.work import BY_FACET, GRADES_LIMITS, Card, Training, load_arrays, reader_name, save_arrays
from qbe.util.files import sha256
from qbe.util.work import Workers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRecipe:
    """How the head is fitted; for the last three see `qbe.train.losses.grade_loss`."""

    epochs: int = 16
    batch: int = 512
    hidden: int = 48
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    differences: float = 1.0
    chances: float = 1.0
    crossed: float = 4.0


class _GradeHead(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.direct, self.hidden = nn.Linear(width, OUTPUTS), nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, OUTPUTS, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.direct(inputs) + self.out(torch.tanh(self.hidden(inputs)))
        return scores

    def head(self, standard: Standardization) -> Head:
        """Export to `Head`; the output bias becomes a hidden unit with zero input weights."""
        constants = as_array(self.direct.bias) / np.tanh(1.0)
        return Head(
            *standard,
            np.concatenate([as_array(self.hidden.weight).T, np.zeros((self.hidden.in_features, 1))], axis=1),
            np.append(as_array(self.hidden.bias), 1.0),
            as_array(self.direct.weight).T,
            np.concatenate([as_array(self.out.weight).T, constants[None]]),
        )


def fit_grade_head(features: Doubles, grades: Doubles, recipe: GradeRecipe, seed: int, path: Path) -> Head:
    """Fit a head of OUTPUTS scores to features (pairs, F), NaN where one lacks, and grades (pairs, 3)."""
    torch.manual_seed(seed)  # for the weights at the start
    standard, network = Standardization.of(features), _GradeHead(features.shape[1], recipe.hidden)
    inputs, truth = standard.inputs(features), torch.tensor(grades, dtype=torch.float32)
    weights = {name: getattr(recipe, name) for name in ("differences", "chances", "crossed")}
    rng, places = np.random.default_rng, range(len(inputs))

    def losses(batch: list[int]) -> Iterator[Tensor]:
        yield grade_loss(network(inputs[batch]), truth[batch], **weights)

    task = Task(
        network,
        -(-len(grades) // recipe.batch),
        rate=lambda *_: (recipe.learning_rate, recipe.weight_decay),
        batches=lambda seed: shuffled(places, recipe.batch, recipe.epochs, rng(seed)),
        losses=losses,
    )
    fit(task, Schedule(recipe.epochs), seed, path)
    return network.head(standard)


def calibrated(head: Head, features: Doubles, grades: Doubles) -> Head:
    """Give each log odds of a head the line of `platt` over pairs with these features and grades: of the best
    of a hundred thousand papers fewer are what they seem than of the pairs of a training.
    """
    scores = head.scores(features)
    direct, out = head.direct.copy(), head.out.copy()
    targets = as_asked(torch.from_numpy(grades)).numpy()
    hidden, bias = np.pad(head.hidden, ((0, 0), (0, 1))), np.append(head.bias, 1.0)
    constants = np.zeros(OUTPUTS)
    for place in range(FACETS, OUTPUTS):
        constants[place], slope = platt(scores[:, place], targets[:, place - FACETS])
        direct[:, place] *= slope
        out[:, place] *= slope
    return Head(head.mean, head.scale, hidden, bias, direct, np.vstack([out, constants / np.tanh(1.0)]))


_PULL, _SMALLEST_STEP = 1e-3, 1e-9


def platt(log_odds: Doubles, targets: Doubles) -> tuple[float, float]:
    """Intercept and slope of a logistic regression (Platt, *Probabilistic outputs for support vector
    machines*, 1999), by Newton's method, with a little pull to 0 and 1; steps halve until the loss falls.
    """
    inputs, prior = np.stack([np.ones_like(log_odds), log_odds], axis=1), np.array([0.0, 1.0])

    def loss(line: Doubles) -> float:
        scores = inputs @ line
        entropy = np.logaddexp(0, scores) - targets * scores
        return float(entropy.sum() + _PULL / 2 * ((line - prior) ** 2).sum())

    line = prior
    for _ in range(50):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ line, -50, 50)))
        gradient = inputs.T @ (targets - chances) - _PULL * (line - prior)
        curvature = (inputs.T * (chances * (1 - chances))) @ inputs + _PULL * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        while loss(line + step) > loss(line) and np.abs(step).max() > _SMALLEST_STEP:
            step = step / 2
        line = line + step
    return float(line[0]), float(line[1])


def query_of(reader: IndexReader, paper_id: str) -> GradedQuery:
    """A paper of an index as a query of the grade model."""
    paper = reader.paper(paper_id)
    vectors = reader.stored_vectors(paper)
    assert vectors is not None
    return GradedQuery(paper, vectors)


def load_or_measure(
    reader: IndexReader, source: Features, lists: GradedLists, file: Path, workers: Workers
) -> tuple[Doubles, Doubles]:
    """The features (pairs, F) and the grades (pairs, 3) of lists of papers of an index, out of ``file`` if it
    is there, else computed and kept there.
    """

    def measure(item: tuple[str, Sequence[GradedPair]]) -> tuple[Doubles, Doubles]:
        query, pairs = item
        others = [pair for pair in pairs if pair.paper_id != query]
        candidates = [reader.paper(pair.paper_id) for pair in others]
        features = source.compare(query_of(reader, query), candidates).values
        return features, np.array([pair.grades for pair in others], np.float64).reshape(-1, 3)

    if not file.exists():
        held = within(lists, reader)
        columns = zip(*workers.map(measure, held.items()), strict=True)
        save_arrays(file, dict(zip(("features", "grades"), map(np.concatenate, columns), strict=True)))
        log.info("%s: %d lists", file.stem, len(held))
    kept = load_arrays(file, "the features of graded pairs", "features", "grades")
    return kept["features"], kept["grades"]


@dataclass
class GradeTraining(Training):
    """The grade model, the mean of the seeds, whose chances are calibrated on the last file of dev.

    Sources are files of graded pairs, an index of their papers, and papers to leave out.
    """

    recipe: GradeRecipe = GradeRecipe()

    def open(self) -> dict[str, Any]:
        self._workers = self.opened.enter_context(Workers(self.run.threads))
        index, self._reader = self.open_index()
        self._encoder = encoder_of(self._reader)
        projections = find_model(self._encoder)
        self._source = Features(read_model(projections).projections, shipped_words(), stored_vectors(index))
        reads = {"words": sha256(SHIPPED / FILE), "projections": sha256(projections / WEIGHTS)}
        return {"index": self._reader.manifest.digest, "reads": reads}

    def fit(self) -> None:
        reader, leave_out = self._reader, self.sources.leave_out

        def read(file: Path, part: str) -> tuple[Doubles, Doubles]:
            lists: GradedLists = read_graded_pairs(file)
            if part == "train":
                lists = without_evaluated(lists, reader, leave_out)
            # By content: files of one name differ, and some lists of a file to train on are left out.
            kept = self.work / f"{part}-{file.stem}-{sha256(file)[:12]}.npz"
            return load_or_measure(reader, self._source, lists, kept, self._workers)

        self._dev = {file_label(file): read(file, "dev") for file in self.sources.dev}
        parts = zip(*(read(file, "train") for file in self.sources.train), strict=True)
        features, grades = map(np.concatenate, parts)
        log.info("fitting to %d pairs", len(grades))
        heads = [
            fit_grade_head(features, grades, self.recipe, seed, self.work / f"{seed}.pt")
            for seed in self.run.seeds
        ]
        self._head = mean_head(heads)
        self._training = {"seeds": list(self.run.seeds), "pairs": len(grades)}

    def publish(self, folder: Path) -> Card:
        calibrating, pairs = list(self._dev.items())[-1]
        training = {**self.made_from, **self._training, "calibrated": calibrating}
        model = GradeModel(calibrated(self._head, *pairs), self._encoder, training)
        write_model(folder, model, FEATURES)
        encoder, weights = self._encoder["name"], self._encoder["weights_sha256"][:12]
        return Card(
            name=reader_name("grades", encoder),
            purpose="Says how similar a candidate is to a paper in background, method and result, from 0 "
            f"(unrelated) to 3 (near identical); learned from {training['pairs']:,} graded pairs.",
            input=f"{len(FEATURES)} comparisons of a paper and a candidate: stored vectors of {encoder} "
            f"(weights {weights}), plain and by {reader_name('facet-projections', encoder)}, and "
            "technique-words",
            caption=f"Root mean squared errors, in grades. Chances are calibrated on {calibrating}.",
            columns=("pairs", *BY_FACET),
            figures={
                name: rms_errors(model.estimates(features).grades, grades)
                for name, (features, grades) in self._dev.items()
            },
            places=2,
            limits=GRADES_LIMITS,
        )


def rms_errors(estimated: Doubles, grades: Doubles) -> list[float]:
    """Root mean squared errors of grades (pairs, 3), by facet."""
    errors: list[float] = np.sqrt(((np.clip(estimated, 0.0, HIGHEST) - grades) ** 2).mean(axis=0)).tolist()
    return errors


# Technique words out of titles: "X for Y" and "Y using X" name a technique X and a problem Y.

_USING = re.compile(r"(.{3,}?\S)\s+(?:using|via|by|with|through|based on)\s+(.{4,})", re.IGNORECASE)
_FOR = re.compile(r"(.{3,}?\S)\s+for\s+(.{4,})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WordsRecipe:
    """How many terms are kept, and which."""

    terms: int = 65_535
    papers: int = 5  # that each is in, at least
    prior: float = 4.0  # titles that a word's lean is smoothed with


def slots_of(title: str) -> tuple[str, str] | None:
    """The technique and the problem that a title names by its form, None for other titles."""
    text = title.rpartition(":")[2].strip()
    if match := _USING.fullmatch(text):
        return match[2], match[1]
    if match := _FOR.fullmatch(text):
        return match[1], match[2]
    return None


@dataclass
class WordsTraining(Training):
    """Technique words: the words of a corpus's titles, counted, but those of papers in files of dev."""

    recipe: WordsRecipe = WordsRecipe()

    def fit(self) -> None:
        left_out = {paper for file in self.sources.dev for paper in papers_of(read_graded_pairs(file))}
        self._papers, self._techniques, self._problems = (Counter[str]() for _ in range(3))
        self._total = 0
        for paper in read_corpus([str(self.sources.corpus)], split_sentences):
            if paper.paper_id in left_out:
                continue
            self._total += 1
            texts = (paper.title, *(sentence.text for sentence in paper.sentences))
            self._papers.update({term for text in texts for term in terms_of(text)})
            if slots := slots_of(" ".join(paper.title.split())):
                self._techniques.update(set(terms_of(slots[0])))
                self._problems.update(set(terms_of(slots[1])))
        self._share = self._problems.total() / max(1, self._techniques.total())

    def _lean(self, term: str) -> float:
        """Log odds of standing in techniques, not problems; a pair of words is smoothed towards its words."""
        words, prior = term.split(), self.recipe.prior
        mean = sum(map(self._lean, words)) / len(words) if len(words) > 1 else 0.0
        expected = 1 / (1 + math.exp(-mean))
        techniques = self._techniques[term] * self._share + prior * expected
        return math.log(techniques / (self._problems[term] + prior * (1 - expected)))

    def publish(self, folder: Path) -> Card:
        papers, total = self._papers, self._total

        def order(term: str) -> tuple[bool, bool, int, str]:
            is_rare = self._techniques[term] + self._problems[term] < 1 + len(term.split())
            return is_rare, " " in term, -papers[term], term

        # Terms of titles come first, then the others, by the number of papers.
        frequent = (term for term, count in papers.items() if count >= self.recipe.papers)
        terms = sorted(frequent, key=order)[: self.recipe.terms]
        log.info("%d terms of %d papers", len(terms), total)
        frequencies = np.array([papers[term] for term in terms], np.float64)
        idf = np.log(1 + (total - frequencies + 0.5) / (frequencies + 0.5))
        TechniqueWords(terms, idf, np.array(list(map(self._lean, terms)))).write(folder)
        titled = sum(bool(self._techniques[term]) for term in terms)
        return Card(
            name="technique-words",
            purpose=f"{len(terms):,} words and pairs of words with their inverse document frequency and "
            "their lean, the log odds of standing in the technique of a title (X in 'X for Y', 'Y using X') "
            "rather than in its problem.",
            input=f"titles and abstracts of {total:,} papers, {titled:,} of the terms in techniques",
            caption=f"`{FILE}` has the SHA-256 {sha256(folder / FILE)[:12]}; a line is a term, its inverse "
            "document frequency and its lean.",
            figures={},
        )
