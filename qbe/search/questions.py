"""Questions and short texts in place of an abstract: which technique they name, and which problem.

"Graph neural networks for traffic forecasting" and "who else uses optimal transport for alignment?" name both
by their form: a title's ("X for Y", "Y using X", "Y via X") or a question's. Where the form leaves it open,
the lean of words to techniques or problems decides (`qbe.models.words`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from qbe.corpus.records import paper_from_text
from qbe.errors import UsageError
from qbe.query import Query
from qbe.types import Facet, Paper, Sentence

MOST_WORDS, MOST_CHARACTERS = 20, 300  # of a question
ASKED = "question"  # key of metadata for what a paper stands for: its ``text``, and the fields of `Question`
CLEAR_LEAN = 0.3  # words with this lean to techniques, or minus this to problems, need no form to tell which

_ANY = r"(?:recent|current|new|existing|related|good|other|more|some|any|all|the|best|first|early)\s+"
_PAPERS = (
    rf"(?:{_ANY})*(?:papers?|works?|articles?|literature|research|studies|publications|surveys?|overviews?|results?"
    r"|methods?|approach(?:es)?|techniques?|algorithms?|ways?|solutions?|mechanisms?|models?|tools?|systems?"
    r"|data\s?sets?|corpora|benchmarks?)"
)
_USE = (
    r"(?:us(?:e[sd]?|ing)|appl(?:y|ies|ied|ying)|tr(?:y|ies|ied)|employ(?:s|ed|ing)?|works?\s+with"
    r"|based\s+on)"
)
_FOR = r"(?:for|to|in|on)"
_X, _Y, _Z = r"(?P<method>.+?)", r"(?P<problem>.+?)", r"(?P<topic>.+?)"

# Questions, and phrases that ask for papers, with the technique, the problem, or a topic to be read further.
_FORMS: Sequence[str] = (
    rf"(?:who|which\s+\w+|what|has\s+any(?:one|body)|have\s+others)(?:\s+(?:else|still|already|also))*\s+{_USE}\s+{_X}"
    rf"(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:how|where|what|when|for\s+what)\s+(?:is|are|was|were|can|could|has|have)\s+{_X}\s+(?:be(?:en)?\s+)?"
    rf"(?:used|useful|applied|employed|of\s+use|good)(?:\s+(?:{_FOR}\s+{_Y}|for))?",
    rf"(?:what|which)\s+can\s+\w+(?:\s+\w+)?\s+(?:do|done)\s+with\s+{_X}",
    rf"what\s+can\s+be\s+done\s+with\s+{_X}",
    rf"(?:{_ANY})*(?:applications?|uses?|usage|variants?|extensions?)\s+of\s+{_X}(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:how\s+)?(?:do|does|did|can|could|will)\s+{_X}\s+(?:help|improve|work|serve|be\s+(?:used|applied))"
    rf"(?:\s+(?:to|with|in|for|on))?\s+{_Y}",
    rf"how\s+(?:do|does)\s+{_X}\s+work",
    rf"(?:{_PAPERS})\s+(?:(?:that|which|who)\s+)?(?:{_USE}|using|with)\s+{_X}(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:{_PAPERS})\s+(?:for|to)\s+{_Y}",
    rf"(?:how|why|when)\s+(?:can|could|do|does|to|should|may)\s+(?:(?:people|others|i|you|one)\s+)?{_Y}",
    rf"(?:what|which)\s+(?:(?:results?|work|papers?|methods?|research)\s+)?(?:is|are|exists?)\s*"
    rf"(?:known|there|new|done|published)?\s+(?:about|on|for|in|of)\s+{_Z}",
    rf"(?:{_PAPERS})\s+(?:on|about|of|in)\s+{_Z}",
    rf"(?:what|who|which)(?:\s+(?:is|are|works?\s+on))?\s+{_Z}",
)

# Forms of titles, how much more the method must lean to techniques than the problem, and how much at least.
_SLOTS = (
    (rf"{_Y}\s+(?:using|via|based\s+on|by\s+means\s+of)\s+{_X}", -9.0, -9.0),
    (rf"{_X}\s+(?:for|applied\s+to)\s+{_Y}", 0.0, -9.0),
    (rf"{_Y}\s+(?:by|with|through)\s+{_X}", 0.3, 0.0),
    (rf"{_X}\s+(?:in|of|on)\s+{_Y}", 0.5, 0.0),
)

_REQUEST = re.compile(
    r"(?:please\s+)?(?:(?:find|show|list|give|suggest|recommend)(?:\s+me)?|i\s+am\s+looking\s+for|looking\s+for"
    r"|is\s+there|are\s+there)\s+",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_STATEMENT = re.compile(r"(?:^|\s)(?:we|our|this\s+(?:paper|work|article))\s|[.!:;]$", re.IGNORECASE)


class Question(NamedTuple):
    """What a short text asks for: a ``method`` and a ``problem``, or a ``topic`` that may be either."""

    method: str = ""
    problem: str = ""
    topic: str = ""


def paper_from_question(text: str) -> Paper:
    """Make a paper to search with of a question or a short text: the technique and the problem that it names
    are its sentences of method and background. Raises UsageError for another text.
    """
    paper = paper_from_text("", text)
    asked = asked_paper(paper)
    if asked is None:
        raise UsageError(
            f"expected a question or a phrase of at most {MOST_WORDS} words without a full stop, found "
            f"{paper.abstract!r:.60}; make a paper of an abstract by qbe.paper_from_text"
        )
    return asked


def asked_paper(paper: Paper) -> Paper | None:
    """Make the paper to search with of one that is a question; None with title, labels, or more sentences."""
    if paper.title or paper.labelled or len(paper.sentences) != 1:
        return None
    text = paper.sentences[0].text
    if (question := question_of(text)) is None:
        return None
    named = ((question.method, Facet.METHOD), (question.problem, Facet.BACKGROUND), (question.topic, None))
    sentences = tuple(Sentence(part, facet) for part, facet in named if part)
    metadata = {**paper.metadata, ASKED: {"text": text, **question._asdict()}}
    return replace(paper, sentences=sentences, labelled=True, offsets=None, metadata=metadata)


def is_question(query: Query) -> bool:
    """True if a query is what a question names."""
    return all(ASKED in paper.metadata for paper in query.papers)


def question_of(text: str) -> Question | None:
    """Read a text as a question; None for a statement, or for more than MOST_WORDS words."""
    words = text.split()
    text = " ".join(words)
    if not 0 < len(words) <= MOST_WORDS or len(text) > MOST_CHARACTERS or _STATEMENT.search(text):
        return None
    text = _REQUEST.sub("", text.rstrip("? "), count=1) or text
    for form in _FORMS:
        if match := re.fullmatch(form, text, re.IGNORECASE):
            found = {name: _ARTICLE.sub("", part, count=1) for name, part in match.groupdict("").items()}
            return _read_on(Question(**found))
    return _read_on(Question(topic=text))


def _read_on(question: Question) -> Question:
    method, problem, topic = question
    if method and problem:
        return question
    from qbe.models.words import shipped_words

    for form, more, least in _SLOTS:
        if match := re.fullmatch(form, method or problem or topic, re.IGNORECASE):
            parts = [_ARTICLE.sub("", match[name], count=1) for name in ("method", "problem")]
            lean, other = map(shipped_words().lean_of, parts)
            if lean >= least and lean - other >= more:
                return Question(*parts)
    lean = shipped_words().lean_of(topic) if topic else 0.0
    if abs(lean) < CLEAR_LEAN:
        return question
    return Question(method=topic) if lean > 0 else Question(problem=topic)
