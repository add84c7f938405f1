"""Technique words out of titles: "X for Y" and "Y using X" name a technique X and a problem Y."""

import logging
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qbe.corpus.reading import read_corpus
from qbe.corpus.sentences import split_sentences
from qbe.models.words import FILE, TechniqueWords, terms_of
from qbe.runs import read_graded_pairs
from qbe.train.pairs import papers_of
from qbe.train.work import Card, Training
from qbe.util.files import sha256

log = logging.getLogger(__name__)

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
        """Count in how many papers, titles' techniques and titles' problems each term stands."""
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
