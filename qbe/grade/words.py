"""Words of techniques and of problems: which of the words that two papers share say how, and which say what.

Titles teach it without labels: in "X for Y" and "Y using X", X names a technique and Y a problem. The log
odds of a word's (or a pair of words') standing in an X rather than in a Y are its *lean*. Words that lean to
techniques count more where papers are compared by method, those that lean to problems by background.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError
from qbe.files import atomic_file
from qbe.types import Facet, Paper, Sentence

Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_STOP_WORDS = """
a an the of in on and to with from as at is are be its their our we it this that these those or but not into
over under than via using by through based for towards toward
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEADER = "term\tidf\tlean"
FILE = "words.tsv.gz"
SHIPPED = Path(__file__).parent.parent / "models" / "technique-words"

BACKGROUND, METHOD, RESULT, ANY = range(4)
_TITLE_SHARES = (1.0, 1.0, 0.5)
"""How much the words of a title count as background, method and result."""

REPEATS = 4
"""How often the word of a technique stands in a query of BM25 for a share of 1."""


def words_of(text: str) -> list[str]:
    """The words of a text: without case and accents, a plural without its ``s``.

    >>> words_of("Graph-based Studies: naïve Bayes")
    ['graph-based', 'study', 'naive', 'baye']
    """
    folded = text.casefold()
    if not folded.isascii():
        decomposed = unicodedata.normalize("NFKD", folded)
        folded = "".join(character for character in decomposed if not unicodedata.combining(character))
    return [_singular(word) for word in _WORD.findall(folded)]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def terms_of(text: str) -> Iterator[str]:
    """The terms of a text: its words but stop words, and pairs of neighbours without a stop word.

    >>> list(terms_of("Learning by graph kernels"))
    ['learning', 'graph', 'kernel', 'graph kernel']
    """
    words = words_of(text)
    yield from (word for word in words if len(word) > 1 and word not in STOP_WORDS)
    for first, second in pairwise(words):
        if first not in STOP_WORDS and second not in STOP_WORDS:
            yield f"{first} {second}"


def facet_shares(sentence: Sentence) -> tuple[float, float, float]:
    """How much a sentence is background, method and result: the tagger's probabilities where it labelled it,
    else 1 for its label.

    >>> facet_shares(Sentence("We route.", Facet.METHOD))
    (0.0, 1.0, 0.0)
    """
    if sentence.probabilities is not None:
        background, method, result = (sentence.probabilities.of(facet) for facet in Facet)
    else:
        background, method, result = (float(sentence.facet is facet) for facet in Facet)
    return background, method, result


class PaperTerms(NamedTuple):
    """The terms of a paper that a `TechniqueWords` knows: their ``numbers`` (n,), ascending, and ``shares``
    (4, n), how much they stand in sentences of background, of method, of result, and of any.
    """

    numbers: Ints
    shares: Doubles


_VIEWS = (
    (METHOD, METHOD, "technique"),
    (METHOD, METHOD, "all"),
    (BACKGROUND, BACKGROUND, "problem"),
    (BACKGROUND, BACKGROUND, "all"),
    (RESULT, RESULT, "all"),
    (ANY, ANY, "all"),
    (ANY, ANY, "technique"),
    (ANY, ANY, "problem"),
)
"""Which sentences of the query and of the candidate are compared, and by which of their words."""

_BEST = ((ANY, "strong technique"), (METHOD, "strong technique"), (BACKGROUND, "strong problem"))
"""Of which sentences and words the most telling three in common count one by one."""

_LEANS = {"all": 0.0, "technique": 2.0, "problem": -2.0, "strong technique": 3.0, "strong problem": -3.0}

_TELLING = {
    Facet.BACKGROUND: ("problem", BACKGROUND),
    Facet.METHOD: ("technique", METHOD),
    Facet.RESULT: ("all", RESULT),
}
"""Which words tell a facet, of which sentences."""

NAMES = (
    *(f"words.{_first}.{_kind}.{_part}" for _first, _, _kind in _VIEWS for _part in ("cosine", "share")),
    *(f"words.{_first}.{_kind}.{_place}" for _first, _kind in _BEST for _place in range(3)),
)
"""The names of the features that `TechniqueWords.compare` gives."""


class TechniqueWords:
    """Terms with their weights in the collection and their lean to techniques or problems.

    >>> idf, lean = np.array([1.0, 3.0, 3.0]), np.array([0, 2, -2])
    >>> words = TechniqueWords(["graph", "kernel", "traffic"], idf, lean)
    >>> one, other = Paper("1", "Graph kernels for traffic", ()), Paper("2", "Kernels for molecules", ())
    >>> words.in_common(one, other)
    ('kernel',)
    """

    def __init__(self, terms: Sequence[str], idf: Doubles, lean: Doubles) -> None:
        """``idf`` (terms,) are inverse document frequencies, ``lean`` (terms,) log odds, positive for
        techniques.
        """
        self.terms, self.idf, self.lean = terms, idf, lean
        self._numbers = {term: number for number, term in enumerate(terms)}
        self._values = {kind: idf / (1 + np.exp(-sign * lean)) for kind, sign in _LEANS.items()}

    @classmethod
    def read(cls, file: Path = SHIPPED / FILE) -> Self:
        """The words in a file that `write` wrote; raises ModelError for one that is absent or damaged."""
        try:
            with gzip.open(file, "rt", encoding="utf-8") as stream:
                header, *lines = stream.read().splitlines()
            rows = [line.split("\t") for line in lines]
            if header != _HEADER:
                raise ValueError(f"a first line {header[:40]!r}")
            numbers = np.array([row[1:] for row in rows], np.float64).reshape(-1, 2)
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise ModelError(
                f"{file}: expected technique words, found: {error}; make them with qbe train technique-words"
            ) from None
        return cls([row[0] for row in rows], numbers[:, 0], numbers[:, 1])

    def write(self, folder: Path) -> None:
        """Write the words into a folder that exists; equal words give equal files."""
        rows = zip(self.terms, self.idf.tolist(), self.lean.tolist(), strict=True)
        text = "\n".join([_HEADER, *(f"{term}\t{idf:.3f}\t{lean:.3f}" for term, idf, lean in rows)]) + "\n"
        with atomic_file(folder / FILE) as stream:
            stream.write(gzip.compress(text.encode(), 9, mtime=0))

    def of(self, paper: Paper) -> PaperTerms:
        """The terms of a paper, with how much they stand in sentences of each facet."""
        highest: dict[int, tuple[float, float, float]] = {}
        texts = ((sentence.text, facet_shares(sentence)) for sentence in paper.sentences)
        for text, shares in ((paper.title, _TITLE_SHARES), *texts):
            for term in terms_of(text):
                number = self._numbers.get(term)
                if number is not None:
                    before = highest.get(number)
                    if before is not None:
                        highest[number] = tuple(map(max, before, shares))  # type: ignore[assignment]
                    else:
                        highest[number] = shares
        numbers = np.array(sorted(highest), np.int64)
        by_facet = np.array([highest[number] for number in numbers.tolist()], np.float64).reshape(-1, 3).T
        return PaperTerms(numbers, np.vstack([by_facet, by_facet.max(axis=0, initial=0.0)[None]]))

    def compare(self, query: Paper, candidates: Sequence[Paper]) -> Doubles:
        """The features NAMES of candidates, (candidates, NAMES): the cosine of weighted terms, the share of
        the query's terms that the candidate has, and the weights of the most telling terms in common.
        """
        mine = self.of(query)
        papers = [self.of(paper) for paper in candidates]
        numbers = np.concatenate([paper.numbers for paper in papers])
        theirs = np.concatenate([paper.shares for paper in papers], axis=1)
        owners = np.repeat(np.arange(len(papers)), [len(paper.numbers) for paper in papers])
        place = np.searchsorted(mine.numbers, numbers)
        place[place == len(mine.numbers)] = 0
        shared = mine.numbers[place] == numbers if len(mine.numbers) else np.zeros(len(numbers), bool)
        ours = np.where(shared, mine.shares[:, place], 0.0) if len(mine.numbers) else np.zeros_like(theirs)

        def summed(values: Doubles) -> Doubles:
            return np.bincount(owners, values, len(papers)).astype(np.float64)

        columns: list[Doubles] = []
        for first, second, kind in _VIEWS:
            value = self._values[kind]
            common = summed(ours[first] * theirs[second] * value[numbers])
            norm = float((mine.shares[first] ** 2 * value[mine.numbers]).sum()) + 1e-6
            norms = summed(theirs[second] ** 2 * value[numbers]) + 1e-6
            columns += [common / np.sqrt(norm * norms), common / norm]
        for part, kind in _BEST:
            weights = np.minimum(ours[part], theirs[part]) * self._values[kind][numbers]
            columns += list(_three_highest(weights, owners, len(papers)))
        return np.stack(columns, axis=1)

    def in_common(self, query: Paper, candidate: Paper, most: int = 3) -> tuple[str, ...]:
        """The terms of techniques that two papers share, the most telling first; a word that stands in a pair
        is not named beside it.
        """
        mine, theirs = self.of(query), self.of(candidate)
        both, at_mine, at_theirs = np.intersect1d(mine.numbers, theirs.numbers, return_indices=True)
        weights = np.minimum(mine.shares[ANY, at_mine], theirs.shares[ANY, at_theirs])
        weights *= self._values["strong technique"][both]
        named: list[str] = []
        for number in both[np.argsort(-weights, kind="stable")].tolist():
            term = self.terms[number]
            if self.lean[number] > 0 and not any(term in other or other in term for other in named):
                named.append(term)
        return tuple(named[:most])

    def query_text(self, paper: Paper, facet: Facet) -> str:
        """Words of a BM25 query that tell a facet of a paper: each word of its sentences as often as it leans
        to techniques by method, to problems by background, which Lucene reads as its weight.

        >>> words = TechniqueWords(["kernel", "traffic"], np.ones(2), np.array([9.0, -9.0]))
        >>> words.query_text(Paper("1", "Kernels for traffic", ()), Facet.METHOD)
        'kernel kernel kernel kernel'
        """
        terms = self.of(paper)
        kind, part = _TELLING[facet]
        leaning = self._values[kind][terms.numbers] / self.idf[terms.numbers]
        counts = np.rint(REPEATS * terms.shares[part] * leaning).astype(int).tolist()
        words = [self.terms[number] for number in terms.numbers.tolist()]
        return " ".join(
            word for word, count in zip(words, counts, strict=True) if " " not in word for _ in range(count)
        )


@cache
def shipped_words() -> TechniqueWords:
    """The words that ship, read once."""
    return TechniqueWords.read()


def _three_highest(weights: Doubles, owners: Ints, count: int) -> Doubles:
    """The three highest weights of each owner, (3, count), in order; 0 where there are fewer."""
    best = np.zeros((3, count))
    positive = np.flatnonzero(weights > 0)
    order = positive[np.lexsort((-weights[positive], owners[positive]))]
    starts = np.searchsorted(owners[order], np.arange(count))
    ranks = np.arange(len(order)) - starts[owners[order]]
    for rank in range(3):
        chosen = order[ranks == rank]
        best[rank, owners[chosen]] = weights[chosen]
    return best
