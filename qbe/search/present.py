"""Results for people (a table) and for programs (JSON)."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from qbe.corpus.bibliography import Reference, reference_of
from qbe.corpus.names import ET_AL
from qbe.query import Aspect, Query
from qbe.search.explain import describe, explain_query, facet_probability, shown, techniques_in_common
from qbe.search.questions import ASKED, in_words
from qbe.types import Hit, Match, Paper, TransportEntry
from qbe.util.text import plain

INDENT = 14

MAX_AUTHORS = 3
"""Authors that a table names; of more it names so many, and others."""

NAMED = 3
"""Papers that a heading names; of more it says how many others there are."""

QUOTED = 60
"""Characters of a sentence that a heading quotes."""

_TIED = "\N{NO-BREAK SPACE}"

_ENGLISH, _OTHERS = (
    frozenset(words.split())
    for words in (
        "the of and to for we that with are is by this from as our which these be it have",
        "le la les des et une dans pour est nous sur du au par avec que qui der das und mit von ist ein eine "
        "wir nicht für auf dem den el los las del y en una con para se il di che per della un nel sono os "
        "uma da em com não um het een van voor og det som att och til ikke",
    )
)
"""Frequent words of English, `in`, `a`, `an` and `on` left out, which other languages have, too; and those of
French, German, Spanish, Italian, Portuguese, Dutch and Scandinavian languages.
"""

Lookup = Callable[[str], Paper]
"""Gives a paper of the index by its id."""
Heading = Callable[[Query, Sequence[Hit]], str]
"""Says in words what hits are."""


def to_record(
    lookup: Lookup,
    query_id: str,
    query: Query,
    hits: Sequence[Hit],
    *,
    first_rank: int = 1,
    explain: bool = False,
) -> dict[str, Any]:
    """One query's result as a record of JSON values.

    A query of one aspect has ``paper_id`` and ``facet``, one of several ``aspects`` instead, and each match
    then names its ``aspect``. A question in place of a paper is in ``question``, with the technique
    (``method``) and the ``problem`` that it names, or its ``topic``. Hits that were graded have ``grades`` by
    facet, from 0 to 3. Hits of a mixed list have the ``corner`` that they are there for, and the ``chance``
    that they are as it asks. Ranks begin with ``first_rank``.

    ``explain`` adds the query's sentences (see `qbe.search.explain.ExplainedSentence`), the probabilities of
    matched sentences' facets, each hit's component scores (see `qbe.types.Hit`), the pair of sentences that
    contributed most to a reranker's score, null where there was none, and the transport plan, empty where the
    reranker has none. Graded or explained hits have ``in_common``, words of techniques that the query's
    paper has too.

    >>> from qbe.types import Facet
    >>> query = Query(index.paper("s036"), Facet.METHOD)
    >>> record = to_record(index.paper, query.query_id, query, [Hit("s051", 1.5, (Match(2, 1, 0.75),))])
    >>> record["query_id"], record["hits"][0]["paper_id"], record["hits"][0]["matches"][0]["facet"]
    ('s036_method', 's051', 'background')
    """
    record: dict[str, Any] = {"query_id": query_id}
    if asked := query.papers[0].metadata.get(ASKED):
        record[ASKED] = dict(asked)
    if query.is_single:
        record |= _aspect(query.aspects[0])
    else:
        record["aspects"] = [
            {**_aspect(aspect), "positions": aspect.positions, "weight": aspect.weight}
            for aspect in query.aspects
        ]
    if explain:
        sentences = [[sentence._asdict() for sentence in explain_query(aspect)] for aspect in query.aspects]
        record["sentences"] = sentences[0] if query.is_single else sentences
    papers = [lookup(hit.paper_id) for hit in hits]
    with_words = [paper for paper, hit in zip(papers, hits, strict=True) if explain or hit.grades is not None]
    in_common = dict(zip(map(id, with_words), techniques_in_common(query, with_words), strict=True))
    record["hits"] = [
        _hit(query, rank, hit, paper, in_common.get(id(paper)), explain)
        for rank, (hit, paper) in enumerate(zip(hits, papers, strict=True), start=first_rank)
    ]
    return record


def _aspect(aspect: Aspect) -> dict[str, Any]:
    return {
        "paper_id": aspect.paper.paper_id,
        "facet": aspect.facet.value if aspect.facet else None,
    }


def described(paper: Paper) -> dict[str, Any]:
    """What a reader sees of a paper: title, year, authors, venue, links and abstract, as JSON values.

    >>> described(index.paper("s036"))["year"]
    '2018'
    """
    reference = reference_of(paper)
    return {
        "title": paper.title,
        "year": plain(paper.year),
        "authors": list(reference.authors),
        "venue": reference.venue,
        "links": reference.links,
        "abstract": paper.abstract,
    }


def _hit(
    query: Query, rank: int, hit: Hit, paper: Paper, in_common: list[str] | None, explain: bool
) -> Mapping[str, Any]:
    place = {"rank": rank, "paper_id": hit.paper_id, "score": hit.score, **described(paper)}
    if hit.corner is not None:
        place |= {"corner": hit.corner, "chance": hit.chance}
    if hit.grades is not None:
        place["grades"] = dict(hit.grades)
    if in_common is not None:
        place["in_common"] = in_common
    matches = [_match(query, paper, match, explain) for match in hit.matches]
    if not explain:
        return {**place, "matches": matches}
    component_scores = {name: round(score, 6) for name, score in (hit.component_scores or {}).items()}
    driven_by = _match(query, paper, hit.driven_by, explain) if hit.driven_by else None
    plan = [{**entry._asdict(), "mass": round(entry.mass, 6)} for entry in hit.plan]
    return {
        **place,
        "component_scores": component_scores,
        "driven_by": driven_by,
        "plan": plan,
        "matches": matches,
    }


def _match(query: Query, paper: Paper, match: Match, explain: bool) -> Mapping[str, Any]:
    sentence = paper.sentences[match.position]
    record: dict[str, Any] = {} if query.is_single else {"aspect": match.aspect}
    record |= {
        "query_position": match.query_position,
        "query_sentence": query.aspects[match.aspect].paper.sentences[match.query_position].text,
        "position": match.position,
        "sentence": sentence.text,
        "offsets": list(paper.offsets[match.position]) if paper.offsets else None,
        "facet": sentence.facet.value if sentence.facet else None,
        "score": round(match.score, 6),
    }
    return record | ({"probability": facet_probability(sentence)} if explain else {})


def to_table(
    lookup: Lookup,
    query: Query,
    hits: Sequence[Hit],
    width: int,
    *,
    explain: bool = False,
    title: Heading | None = None,
    graded_by: str = "",
) -> str:
    """One query's result for a person: rank, score, title, year, authors, venue and link as far as they are
    known, grades where papers were graded, and a sentence that matched (see `qbe.search.explain.shown`);
    ``title`` makes the heading (None: `heading`), and ``graded_by`` is whose grades they are.

    A facet with a question mark is a best guess; how a sentence that does not carry the facet searched for is
    labelled stands in parentheses. ``explain`` shows the query's sentences and all matches, each with its
    facet and the probability of this, and the component scores of each hit.

    >>> from qbe.types import Facet
    >>> query = Query(index.paper("s036"), Facet.METHOD)
    >>> print(to_table(index.paper, query, [Hit("s051", 1.5, (Match(2, 1, 0.75),))], 100))
    Papers like “Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations”, for its
    method:
    <BLANKLINE>
       1   1.5000 Masking Politicians' Words: Self-Supervision Brings No Gain in Claim Verification
                  (2020)  [s051]
                  (labelled background) The question here is whether pre-training on unlabelled speeches
                  helps a machine to do it.
    """
    lines = textwrap.wrap(f"{(title or heading)(query, hits)}:", width)
    if explain:
        lines += ["", *_query_lines(query, hits, width)]
    blocks = []
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        year = f" ({paper.year})" if paper.year else ""
        block = _wrapped(
            f"{rank:4d} {hit.score:8.4f} ", f"{paper.title or hit.paper_id}{year}  [{hit.paper_id}]", width
        )
        block += _wrapped("", credits_of(reference_of(paper)), width, whole_words=True)
        if hit.grades is not None:
            block += _wrapped("", grades_in_words(hit, graded_by), width)
        if explain:
            block += _explained_lines(query, paper, hit, width)
        elif best := shown(query, paper, hit):
            block += _wrapped("", best.prefix + paper.sentences[best.match.position].text, width)
        blocks.append("\n".join(block))
    return "\n".join([*lines, *(["", "\n\n".join(blocks)] if hits else ["No paper was found."])])


def columns(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Lines of two columns, the second one wrapped.

    >>> columns([("k N", "hits"), ("more", "go on")], 60)
    ['  k N   hits', '  more  go on']
    """
    rows = list(rows)
    first = max((len(left) for left, _ in rows), default=0) + 4
    lines = []
    for left, right in rows:
        begin = f"  {left}".ljust(first)
        lines += textwrap.wrap(
            right, max(width, first + INDENT), initial_indent=begin, subsequent_indent=" " * first
        )
    return lines


def credits_of(reference: Reference, *, link: bool = True) -> str:
    """A paper's first authors, venue and, with ``link``, a link, as far as they are known.

    >>> metadata = {"authors": ["Ann Lee", "Bo Ek", "Cy Doe", "Di Fu"], "venue": "Fish Letters"}
    >>> credits_of(reference_of(Paper("7", "On fish", (), metadata=metadata)))
    'Ann Lee, Bo Ek, Cy Doe et al.; Fish Letters'
    """
    first = [author for author in reference.authors[:MAX_AUTHORS] if author != ET_AL]
    authors = ", ".join(first) + (f" {ET_AL}" if len(first) < len(reference.authors) else "")
    return "; ".join(filter(None, (authors, reference.venue, reference.link if link else "")))


def grades_in_words(hit: Hit, graded_by: str = "") -> str:
    """Grades of a hit by facet, behind the shape that it is in a mixed list for, and whose they are where
    qbe did not estimate them.

    >>> grades_in_words(Hit("s051", 1.0, grades={"background": 2.61, "method": 0.4}, corner="competitors"))
    'competitors: background 2.6, method 0.4 of 3'
    >>> grades_in_words(Hit("s051", 1.0, grades={"method": 2}), "qwen3:4b")
    'method 2.0 of 3, by qwen3:4b'
    """
    graded = ", ".join(f"{name} {grade:.1f}" for name, grade in (hit.grades or {}).items()) + " of 3"
    if graded_by:
        graded += f", by {plain(graded_by)}"
    return f"{hit.corner}: {graded}" if hit.corner else graded


def heading(query: Query, hits: Sequence[Hit] = ()) -> str:
    """What the papers are like, such as ``Papers like “A title”, for its method``; of a mixed list how many
    of the hits are there for each shape, such as ``Papers like “A title”: 2 competitors``.

    >>> from qbe.types import Facet
    >>> query = Query.by_facets(index.paper("s036"), {Facet.BACKGROUND: 1, Facet.METHOD: 1})
    >>> heading(query, [Hit("s051", 1.0, corner="competitors")])
    'Papers like “Two Crops of a Paragraph: ... for Suggesting Citations”: 1 competitors'
    """
    if query.is_single:
        return f"Papers {_like(query.aspects[0])}{_foreign_note(query)}"
    corners = Counter(hit.corner for hit in hits if hit.corner)
    liked = {aspect.paper.paper_id for aspect in query.aspects if aspect.weight > 0}
    ids = [paper.paper_id for paper in query.papers]
    unnamed = [[each for each in ids if (each in liked) is side][NAMED:] for side in (False, True)]
    parts: dict[tuple[str | bool, str], None] = {}  # of a paper, or of those of a side that are not named
    for aspect in query.aspects:
        paper_id = aspect.paper.paper_id
        is_liked = paper_id in liked
        if paper_id in (rest := unnamed[is_liked]):
            parts[is_liked, f"and {'' if is_liked else 'not like '}{len(rest)} more"] = None
        elif corners:
            parts[paper_id, f"{'' if is_liked else 'not '}like “{_title(aspect.paper)}”"] = None
        else:
            negation = "not " if aspect.weight < 0 else ""
            weight = "" if abs(aspect.weight) == 1 else f" (weight {abs(aspect.weight):g})"
            parts[paper_id, f"{negation}{_like(aspect)}{weight}"] = None
    shapes = ", ".join(f"{count} {corner}" for corner, count in corners.items())
    said = "; ".join(part for _, part in parts)
    return f"Papers {said}{shapes and f': {shapes}'}{_foreign_note(query)}"


def heading_to_cite(query: Query, _: Sequence[Hit] = ()) -> str:
    """What papers to cite are for.

    >>> heading_to_cite(Query(index.paper("s036")))
    'Papers for “Two Crops of a Paragraph: ... for Suggesting Citations” to cite'
    """
    return f"Papers for “{_title(query.papers[0])}” to cite{_foreign_note(query)}"


def _foreign_note(query: Query) -> str:
    foreign = not all(looks_english(f"{paper.title} {paper.abstract}") for paper in query.papers)
    return " (this does not look like English, which the models read: expect little)" if foreign else ""


def looks_english(text: str) -> bool:
    """Whether at least half of the letters of a text are Latin, and frequent words of other languages do not
    outnumber those of English.

    >>> texts = "鱼在游泳。", "🐟", "Das Schiff fährt mit der Flut.", "The ship sails. Déjà vu du jour."
    >>> [looks_english(text) for text in texts]
    [False, False, False, True]
    """
    letters = list(filter(str.isalpha, text))
    # Latin letters with their accents end at U+024F; formulas have a few Greek ones.
    if not letters or sum(map("\u0250".__gt__, letters)) < len(letters) / 2:
        return False
    words = text.lower().split()
    others = sum(word in _OTHERS for word in words)
    return others < 2 or others <= sum(word in _ENGLISH for word in words)


def _like(aspect: Aspect) -> str:
    asked = aspect.paper.metadata.get(ASKED)
    if asked and aspect.facet is None and aspect.positions is None:
        return f"for “{plain(asked['text'])}”: {plain(in_words(asked))}"
    seen = f"for its {aspect.facet}" if aspect.facet else "by its abstract"
    if aspect.positions is not None:
        seen = "by sentences " + ", ".join(map(str, aspect.positions))
    if aspect.is_guess:
        sentence = aspect.paper.sentences[aspect.selected_positions()[0]].text
        begin = sentence if len(sentence) <= QUOTED else f"{sentence[:QUOTED].rpartition(' ')[0]} ..."
        seen += f" (no {aspect.facet} sentence recognized; using “{begin}”; choose others with --sentences)"
    return f"like “{_title(aspect.paper)}”, {seen}"


def _title(paper: Paper) -> str:
    """What a heading calls a paper."""
    asked = paper.metadata.get(ASKED)
    return plain(asked["text"] if asked else paper.title or paper.sentences[0].text)


def _query_lines(query: Query, hits: Sequence[Hit], width: int) -> list[str]:
    lines = []
    for number, aspect in enumerate(query.aspects):
        if not query.is_single:
            lines += textwrap.wrap(f"Aspect {number}, {aspect.name} of “{plain(aspect.paper.title)}”:", width)
        for sentence in explain_query(aspect):
            label = describe(aspect.paper, sentence.position, aspect.facet)
            mark = "*" if sentence.selected else " "
            lines += _wrapped(f"{mark}{sentence.position}".rjust(4), f"{label}: {sentence.text}", width)
    legend = "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity."
    if any(hit.driven_by for hit in hits):
        legend += " >3 is the pair of sentences that contributed most to the reranker's score."
    if any(hit.plan for hit in hits):
        legend += " 3→0 0.20 is the mass that went from sentence 3 to the paper's sentence 0."
    return [*lines, *textwrap.wrap(legend, width)]


def _explained_lines(query: Query, paper: Paper, hit: Hit, width: int) -> list[str]:
    """The component scores of a hit, the transport plan, the pair that drove it, and all matches."""
    lines = _wrapped("", _in_words(hit.component_scores), width) if hit.component_scores else []
    if in_common := techniques_in_common(query, [paper])[0]:
        lines += _wrapped("", f"both: {', '.join(in_common)}", width)
    if hit.plan:
        lines += [line.replace(_TIED, " ") for line in _wrapped("", _plan_in_words(hit.plan), width)]
    pairs = [(">", hit.driven_by)] if hit.driven_by else []
    for mark, match in (*pairs, *(("~", match) for match in hit.matches)):
        aspect = "" if query.is_single else f"{match.aspect}."
        first = f"{mark}{aspect}{match.query_position}".rjust(4)
        label = f"{describe(paper, match.position, query.aspects[match.aspect].facet)}: "
        text = paper.sentences[match.position].text
        lines += _wrapped(f"{first} {match.score:8.4f} ", f"{label}{text}", width)
    return lines


def _in_words(component_scores: Mapping[str, float]) -> str:
    """Component scores, such as ``bm25 12.3000, first stage 1.2500, reranker 0.5000``."""
    words = [f"{name.replace('_', ' ')} {score:.4f}" for name, score in component_scores.items()]
    below = "first_stage" in component_scores and "reranker" not in component_scores
    return ", ".join([*words, "not reranked"] if below else words)


def _plan_in_words(plan: Sequence[TransportEntry]) -> str:
    """The masses of a plan that are at least 0.005, such as ``transport 3→0 0.20, 1→4 0.05``; no-break spaces
    before masses keep a line from being broken there.
    """
    entries = [f"{entry.query_position}→{entry.position}{_TIED}{entry.mass:.2f}" for entry in plan]
    return "transport " + ", ".join(entry for entry in entries if not entry.endswith("0.00"))


def _wrapped(first: str, text: str, width: int, *, whole_words: bool = False) -> list[str]:
    """Lines behind a margin, in whose first line ``first`` stands; ``whole_words`` are not broken."""
    return textwrap.wrap(
        plain(text),
        max(width, 2 * INDENT),
        initial_indent=first.ljust(INDENT),
        subsequent_indent=" " * INDENT,
        break_long_words=not whole_words,
        break_on_hyphens=not whole_words,
    )
