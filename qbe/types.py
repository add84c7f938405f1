"""Papers, facets and hits; queries are in `qbe.query`, runs in `qbe.evaluate.run`.

Standard library only, so that every other module may import it at no cost.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Facet(enum.Enum):
    """An aspect of a paper (Mysore et al., 2021, section 3.1); also named ``problem`` and ``findings``."""

    BACKGROUND = "background"
    METHOD = "method"
    RESULT = "result"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def _missing_(cls, value: object) -> "Facet | None":
        return {"problem": cls.BACKGROUND, "findings": cls.RESULT}.get(str(value))

    @classmethod
    def from_label(cls, label: str) -> "Facet | None":
        """The facet of a label, with or without ``_label``; ``other`` is no facet (None)."""
        return _FACET_OF_LABEL[label.removesuffix("_label")]


_FACET_OF_LABEL: Mapping[str, Facet | None] = {
    "background": Facet.BACKGROUND,
    "problem": Facet.BACKGROUND,
    "objective": Facet.BACKGROUND,
    "aim": Facet.BACKGROUND,
    "method": Facet.METHOD,
    "result": Facet.RESULT,
    "findings": Facet.RESULT,
    "other": None,
}


class FacetProbabilities(NamedTuple):
    """Probabilities of the five labels of CSAbstruct (Cohan et al., 2019) for one sentence; they sum to 1."""

    background: float
    objective: float
    method: float
    result: float
    other: float

    @property
    def label(self) -> str:
        """The likeliest label; background and objective first count together, as in `facet`."""
        shares = (self.background + self.objective, self.method, self.result, self.other)
        best = shares.index(max(shares))
        if best > 0:
            return self._fields[best + 1]
        return "background" if self.background >= self.objective else "objective"

    @property
    def facet(self) -> Facet | None:
        return _FACET_OF_LABEL[self.label]

    def of(self, facet: Facet) -> float:
        if facet is Facet.BACKGROUND:
            return self.background + self.objective
        return self.method if facet is Facet.METHOD else self.result


TEXT_NOT_INCLUDED = "(text not included)"  # the text of each sentence in an index shared without abstracts
AIM = "aim"  # the label that people read of an objective, which folds into background
_OF_AIM = FacetProbabilities(background=0.0, objective=0.6, method=0.4, result=0.0, other=0.0)


class Sentence(NamedTuple):
    """A sentence of an abstract, its facet (None: no label or ``other``) and, if predicted, probabilities."""

    text: str
    facet: Facet | None = None
    probabilities: FacetProbabilities | None = None

    @property
    def label(self) -> str:
        """The label that people read: the facet, ``aim`` for a predicted objective, else ``other``."""
        if self.probabilities is not None and self.probabilities.label == "objective":
            return AIM
        return str(self.facet or "other")

    def labelled(self, label: str) -> "Sentence":
        """Return the sentence with another `label` (ValueError for none); an aim is in part method."""
        if label == AIM:
            return Sentence(self.text, Facet.BACKGROUND, _OF_AIM)
        return Sentence(self.text, None if label == "other" else Facet(label))


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its id, title, and abstract as sentences.

    >>> sentences = Sentence("Routes are long.", Facet.BACKGROUND), Sentence("We cut them.", Facet.METHOD)
    >>> paper = Paper("p1", "On routes", sentences, labelled=True, metadata={"date": "2019-05"})
    >>> paper.abstract, paper.positions(Facet.METHOD), paper.year
    ('Routes are long. We cut them.', (1,), '2019')
    """

    paper_id: str
    title: str
    sentences: tuple[Sentence, ...]
    labelled: bool = False  # its sentences carry facets, given or predicted
    metadata: Mapping[str, Any] = field(default_factory=dict)
    # Where sentences begin and end in the abstract as it came, in characters; None: it came as sentences.
    offsets: tuple[tuple[int, int], ...] | None = None

    @property
    def abstract(self) -> str:
        return " ".join(self.texts(range(len(self.sentences))))

    def texts(self, positions: Iterable[int]) -> Iterator[str]:
        """The texts of the sentences at some positions, as far as they are included."""
        texts = (self.sentences[position].text for position in positions)
        return (text for text in texts if text != TEXT_NOT_INCLUDED)

    @property
    def year(self) -> str | None:
        """The year as its record gives it, such as ``2019``, or None."""
        return year_given(self.metadata) or None

    def __post_init__(self) -> None:
        are_sentences = isinstance(self.sentences, tuple) and all(
            isinstance(each, Sentence) and (each.facet is None or isinstance(each.facet, Facet))
            for each in self.sentences
        )
        if not are_sentences:
            raise TypeError(
                "expected a tuple of qbe.Sentence, with qbe.Facet or None, as the sentences of a paper; make "
                "a paper of a plain abstract by qbe.paper_from_text(title, abstract)"
            )

    def positions(self, facet: Facet | None) -> tuple[int, ...]:
        """Positions (from 0) of the sentences of a facet; of all sentences where it is None."""
        if facet is not None and not isinstance(facet, Facet):
            raise TypeError(f"expected a qbe.Facet such as Facet.METHOD, or None, found {facet!r}")
        return tuple(i for i, each in enumerate(self.sentences) if facet is None or each.facet is facet)

    @property
    def predicted(self) -> bool:
        """Whether a tagger labelled this paper: its sentences carry probabilities."""
        return self.labelled and any(sentence.probabilities is not None for sentence in self.sentences)

    def facet_positions(self, facet: Facet) -> tuple[tuple[int, ...], bool]:
        """Positions that stand for a facet, and whether they are a guess (the likeliest sentence)."""
        positions = self.positions(facet)
        if positions or not self.predicted:
            return positions, False
        likely = [-1.0 if s.probabilities is None else s.probabilities.of(facet) for s in self.sentences]
        return (likely.index(max(likely)),), True


def year_given(metadata: Mapping[str, Any]) -> str:
    """Return ``year``, else the year that ``date`` (``2019-05``, ``20190501``) begins with, else ''."""
    year = str(metadata.get("year") or "").strip()
    if year.lower() not in ("", "none", "null", "nan"):  # what programs write for none
        return year
    match = _DATED.match(str(metadata.get("date") or ""))
    return "" if match is None else match[1]


# A year, followed by no digit, or month and day of two digits each.
_DATED = re.compile(r"\s*(\d{4})(?:(?!\d)|(?=(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?!\d)))", re.ASCII)

# For each of several queries the ids of the papers to rank, or None: the whole index.
Pools = Sequence[Sequence[str] | None]


class Match(NamedTuple):
    """A sentence of the query's ``aspect``, the candidate's closest (all from 0), and their similarity."""

    query_position: int
    position: int
    score: float
    aspect: int = 0


class TransportEntry(NamedTuple):
    """The mass that a transport plan, of 1 in all, moves from a query sentence to a candidate's."""

    query_position: int
    position: int
    mass: float


class Hit(NamedTuple):
    """One ranked paper."""

    paper_id: str
    score: float
    matches: tuple[Match, ...] = ()  # none where the index has no sentence vectors
    # Of an explained search: the first stage's, before fusion, and ``first_stage`` and ``reranker``.
    component_scores: Mapping[str, float] | None = None
    driven_by: Match | None = None  # what contributed most to a reranker's score, where it tells
    plan: tuple[TransportEntry, ...] = ()  # of an explained search, largest mass first
    grades: Mapping[str, float] | None = None  # by facet, from 0 (unrelated) to 3 (near identical)
    chance: float | None = None  # to be as asked, from 0 to 1, where grades rank
    corner: str | None = None  # the shape that the paper is there for in a mixed list
