"""Technique words: which of the words that two papers share name a technique, and which a problem.

In titles "X for Y" and "Y using X", X names a technique and Y a problem. The log odds of a word (or a pair)
being in an X are its *lean*; words that lean to techniques count more by method, the others by background.
"""

import gzip
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import count, pairwise
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from qbe.models import reading
from qbe.models.cards import PACKAGE, Doubles
from qbe.types import TEXT_NOT_INCLUDED, Facet, Paper, Sentence
from qbe.util.files import atomic_file

Ints = NDArray[np.int64]

_STOP_WORDS = """
a an the of in on and to with from as at is are be its their our we it this that these those or but not into
over under than via using by through based for towards toward
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_CUT = re.compile(r"(?<![\w-])(bia|baye)(?![\w-])")
_HEADER = "term\tidf\tlean"
FILE = "words.tsv.gz"
SHIPPED = PACKAGE / "technique-words"

BACKGROUND, METHOD, RESULT, ANY = range(4)
_TITLE_SHARES = (1.0, 1.0, 0.5)  # how much the words of a title count as background, method and result
REPEATS = 4  # how often the word of a technique stands in a query of BM25 for a share of 1
_KEPT_WORDS = 1 << 19
# The lean, the share in the methods of both and the idf above which a word in common is named.
_LEAN_FROM, _SHARE_FROM, _RARE_FROM = 0.3, 0.3, 4.0

# Facets of the sentences that are compared, and the words that count.
_VIEWS = (
    *((METHOD, "technique"), (METHOD, "all"), (BACKGROUND, "problem"), (BACKGROUND, "all"), (RESULT, "all")),
    *((ANY, "all"), (ANY, "technique"), (ANY, "problem")),
)
# Facets and kinds of words whose top three shared terms are separate features.
_BEST = ((ANY, "strong technique"), (METHOD, "strong technique"), (BACKGROUND, "strong problem"))
_LEANS = {"all": 0.0, "technique": 2.0, "problem": -2.0, "strong technique": 3.0, "strong problem": -3.0}
# The words that stand for a facet in a query of BM25, and the sentences that they come from.
_TELLING = {
    Facet.BACKGROUND: ("problem", BACKGROUND),
    Facet.METHOD: ("technique", METHOD),
    Facet.RESULT: ("all", RESULT),
}
NAMES = (
    *(f"words.{_first}.{_kind}.{_part}" for _first, _kind in _VIEWS for _part in ("cosine", "share")),
    *(f"words.{_first}.{_kind}.{_place}" for _first, _kind in _BEST for _place in range(3)),
)
"""The names of the features of `TechniqueWords.compare`."""


def words_of(text: str) -> list[str]:
    """Split a text into words without case and accents, a plural without its ``s``.

    >>> words_of("Graph-based Studies: naïve Bayes")
    ['graph-based', 'study', 'naive', 'baye']
    """
    return [_singular(word) for word in _raw_words(text)]


def _raw_words(text: str) -> list[str]:
    folded = text.casefold()
    if not folded.isascii():
        decomposed = unicodedata.normalize("NFKD", folded)
        folded = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(folded)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def terms_of(text: str) -> Iterator[str]:
    """Yield the terms of a text: its words but stop words, and pairs of neighbours without a stop word.

    >>> list(terms_of("Learning by graph kernels"))
    ['learning', 'graph', 'kernel', 'graph kernel']
    """
    words = words_of(text)
    yield from (word for word in words if len(word) > 1 and word not in STOP_WORDS)
    for first, second in pairwise(words):
        if first not in STOP_WORDS and second not in STOP_WORDS:
            yield f"{first} {second}"


_GIVEN = {None: (0.0, 0.0, 0.0), Facet.BACKGROUND: (1.0, 0.0, 0.0)}
_GIVEN |= {Facet.METHOD: (0.0, 1.0, 0.0), Facet.RESULT: (0.0, 0.0, 1.0)}


def facet_shares(sentence: Sentence) -> tuple[float, float, float]:
    """Return how much a sentence is background, method and result: probabilities, else 1 for its label."""
    shares = sentence.probabilities
    if shares is not None:  # written out: it is asked of every sentence of every candidate
        return shares.background + shares.objective, shares.method, shares.result
    return _GIVEN[sentence.facet]


class PapersTerms(NamedTuple):
    """The known terms of papers, in order: paper, number, and share (4, terms) by facet and in any."""

    owners: Ints
    numbers: Ints
    shares: Doubles
    papers: int


class TechniqueWords:
    """Terms with their weights in the collection and their lean to techniques or problems."""

    def __init__(self, terms: Sequence[str], idf: Doubles, lean: Doubles) -> None:
        """Take inverse document frequencies (terms,) and log odds (terms,), positive for techniques."""
        self.terms, self.idf, self.lean = terms, idf, lean
        # Each cold search waits for what follows, so it is done word by word in C alone.
        words = " ".join(terms).split()
        self._vocabulary = dict(zip(dict.fromkeys(words), count()))
        self._number = lru_cache(_KEPT_WORDS)(self._number_of)
        # The number of the term that is a word alone (-1: none), and of those of two words, by both.
        self._alone = np.full(len(self._vocabulary) + 1, -1, np.int64)
        numbers = np.fromiter(map(self._vocabulary.__getitem__, words), np.int64, len(words))
        lengths = 1 + np.fromiter(map(methodcaller("count", " "), terms), np.int64, len(terms))
        starts, places = lengths.cumsum() - lengths, np.arange(len(terms))
        self._alone[numbers[starts[lengths == 1]]] = places[lengths == 1]
        first = starts[lengths == 2]
        keys = numbers[first] * len(self._alone) + numbers[first + 1]
        order = np.argsort(keys)
        none = np.array([[-2], [-1]])
        self._pairs = np.hstack([none, np.stack([keys[order], places[lengths == 2][order]])])
        self._values = {kind: idf / (1 + np.exp(-sign * lean)) for kind, sign in _LEANS.items()}

    def _number_of(self, raw: str) -> int:  # of a word as texts spell it; -1: unknown
        word = _singular(raw)
        return -1 if word in STOP_WORDS else self._vocabulary.get(word, -1)

    @classmethod
    def read(cls, file: Path = SHIPPED / FILE) -> Self:
        """Read a file that `write` wrote; raises ModelError for one that is absent or damaged."""
        with reading(file, "technique words", "make them with qbe train technique-words"):
            with gzip.open(file, "rt", encoding="utf-8") as stream:
                header, _, table = stream.read().partition("\n")
            if header != _HEADER:
                raise ValueError(f"a first line {header[:40]!r}")
            cells = table.rstrip("\n").replace("\n", "\t").split("\t") if table else []
            numbers = [np.fromiter(map(float, cells[column::3]), np.float64) for column in (1, 2)]
            if len(cells) != 3 * len(numbers[1]):
                raise ValueError("a line of other than three columns")
        return cls(cells[::3], *numbers)

    def write(self, folder: Path) -> None:
        """Write the words into a folder that exists; equal words give equal files."""
        rows = zip(self.terms, self.idf.tolist(), self.lean.tolist(), strict=True)
        text = "\n".join([_HEADER, *(f"{term}\t{idf:.3f}\t{lean:.3f}" for term, idf, lean in rows)]) + "\n"
        with atomic_file(folder / FILE) as stream:
            stream.write(gzip.compress(text.encode(), 9, mtime=0))

    def lean_of(self, text: str) -> float:
        """Return the mean lean of a text's terms, weighted by how rare they are; 0 where it has none."""
        known = self._known(text)
        weight = float(self.idf[known].sum())
        return float((self.lean[known] * self.idf[known]).sum()) / weight if weight else 0.0

    def weights_of(self, text: str) -> dict[str, float]:
        """Return the terms of a text and inverse document frequencies, unknown words the highest."""
        new = (term for term in terms_of(text) if " " not in term and self._number(term) < 0)
        known = {self.terms[number]: float(self.idf[number]) for number in self._known(text).tolist()}
        return known | dict.fromkeys(new, float(self.idf.max()))

    def _known(self, text: str) -> Ints:
        words = np.array([self._number(word) for word in _raw_words(text)], np.int64)
        numbers = self._numbers_of(words, np.zeros(max(0, len(words) - 1), bool))
        return numbers[numbers >= 0]

    def of_papers(self, papers: Sequence[Paper]) -> PapersTerms:
        words, lengths, owners = list[int](), list[int](), list[int]()
        shares: list[tuple[float, float, float]] = []
        for owner, paper in enumerate(papers):
            included = (each for each in paper.sentences if each.text != TEXT_NOT_INCLUDED)
            texts = ((sentence.text, facet_shares(sentence)) for sentence in included)
            for text, of_text in ((paper.title, _TITLE_SHARES), *texts):
                found = list(map(self._number, _raw_words(text)))
                words += found
                lengths.append(len(found))
                owners.append(owner)
                shares.append(of_text)
        place = np.repeat(np.arange(len(lengths)), lengths)
        numbers = self._numbers_of(np.array(words, np.int64), place[:-1] != place[1:])
        known = numbers >= 0
        numbers, place = numbers[known], np.concatenate([place, place[:-1]])[known]
        keys = np.array(owners, np.int64)[place] * len(self.terms) + numbers
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        keys = keys[starts]
        by_text = np.array(shares, np.float64).reshape(-1, 3)[place[order]]
        highest = np.maximum.reduceat(by_text, starts) if len(keys) else by_text
        of_any = highest.max(axis=1, initial=0.0)[:, None]
        return PapersTerms(*np.divmod(keys, len(self.terms)), np.hstack([highest, of_any]).T, len(papers))

    def _numbers_of(self, words: Ints, is_apart: NDArray[np.bool_]) -> Ints:
        """Return the terms of words, then of pairs of neighbours but for those apart; -1: no term."""
        first, second = words[:-1], words[1:]
        keys = np.where((first >= 0) & (second >= 0) & ~is_apart, first * len(self._alone) + second, -1)
        places = np.searchsorted(self._pairs[0], keys).clip(max=len(self._pairs[0]) - 1)
        pairs = np.where(self._pairs[0][places] == keys, self._pairs[1][places], -1)
        return np.concatenate([self._alone[words], pairs])

    def compare(self, query: Paper, candidates: PapersTerms) -> Doubles:
        """Compute the features NAMES, (candidates, NAMES), of terms in common."""
        owners, numbers, theirs, count = candidates
        mine, _, ours = self._shared(query, candidates)
        columns: list[Doubles] = []
        for part, kind in _VIEWS:
            value = self._values[kind]
            products = (ours[part] * theirs[part] * value[numbers], theirs[part] ** 2 * value[numbers])
            common, norms = (np.bincount(owners, each, count).astype(np.float64) for each in products)
            norm = float((mine.shares[part] ** 2 * value[mine.numbers]).sum()) + 1e-6
            columns += [common / np.sqrt(norm * (norms + 1e-6)), common / norm]
        for part, kind in _BEST:
            weights = np.minimum(ours[part], theirs[part]) * self._values[kind][numbers]
            # Each candidate's three highest weights, 0 where it has fewer.
            positive = np.flatnonzero(weights > 0)
            order = positive[np.lexsort((-weights[positive], owners[positive]))]
            starts = np.searchsorted(owners[order], np.arange(count))
            ranks = np.arange(len(order)) - starts[owners[order]]
            for rank in range(3):
                chosen, column = order[ranks == rank], np.zeros(count)
                column[owners[chosen]] = weights[chosen]
                columns.append(column)
        return np.stack(columns, axis=1)

    def _shared(self, query: Paper, theirs: PapersTerms) -> tuple[PapersTerms, NDArray[np.bool_], Doubles]:
        """Return the query's terms, which of the candidates' are among them, and its shares of these."""
        mine, numbers = self.of_papers([query]), theirs.numbers
        if not len(mine.numbers):
            return mine, numbers < 0, np.zeros_like(theirs.shares)
        place = np.searchsorted(mine.numbers, numbers)
        place[place == len(mine.numbers)] = 0
        is_shared = mine.numbers[place] == numbers
        return mine, is_shared, np.where(is_shared, mine.shares[:, place], 0.0)

    def in_common(self, query: Paper, candidates: Sequence[Paper], most: int = 3) -> list[tuple[str, ...]]:
        """Name the technique terms that candidates share with a query, but no word of a named pair."""
        theirs = self.of_papers(candidates)
        owners, numbers = theirs.owners, theirs.numbers
        _, is_shared, ours = self._shared(query, theirs)
        both = np.minimum(ours[METHOD], theirs.shares[METHOD])
        is_method = (self.lean[numbers] > _LEAN_FROM) & (both > _SHARE_FROM)
        telling = is_shared & is_method & (self.idf[numbers] > _RARE_FROM)
        named: list[list[str]] = [[] for _ in candidates]
        for place in np.argsort(-both * self._values["strong technique"][numbers], kind="stable").tolist():
            if telling[place]:
                terms, term = named[owners[place]], self.terms[numbers[place]]
                if not term.isdigit() and not any(term in other or other in term for other in terms):
                    terms.append(term)
        # For people, a word that lost more than a plural's s is written out.
        return [
            tuple(_CUT.sub(r"\1s", re.sub(r"(?<=ss|.x)e\b", "", term)) for term in terms[:most])
            for terms in named
        ]

    def query_text(self, paper: Paper, facet: Facet) -> str:
        """Write the BM25 query for a facet of a paper; a word's repetitions are its weight."""
        terms = self.of_papers([paper])
        kind, part = _TELLING[facet]
        leaning = 1 / (1 + np.exp(-_LEANS[kind] * self.lean[terms.numbers]))
        counts = np.rint(REPEATS * terms.shares[part] * leaning).astype(int).tolist()
        words = [self.terms[number] for number in terms.numbers.tolist()]
        return " ".join(
            word for word, count in zip(words, counts, strict=True) if " " not in word for _ in range(count)
        )


@cache
def shipped_words() -> TechniqueWords:
    return TechniqueWords.read()
