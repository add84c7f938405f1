"""Results as text: a TREC run, JSON, tables, CSV, Markdown and bibliographies, and runs that resume."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from qbe.corpus.bibliography import Reference, reference_of
from qbe.corpus.names import ET_AL
from qbe.query import Aspect, Query
from qbe.search.explain import describe, explain_query, facet_probability, shown, techniques_in_common
from qbe.search.questions import ASKED, in_words
from qbe.types import Facet, Hit, Match, Paper, Sentence, TransportEntry
from qbe.util.text import plain

if TYPE_CHECKING:
    from qbe.corpus.bibliography import Bibliography

INDENT = 14

MAX_AUTHORS = 3
"""Authors that a table names at most."""

NAMED = 3
"""Papers that a heading names at most."""

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
"""Frequent words of English, without those that other languages share, and of other European languages."""

Lookup = Callable[[str], Paper]
"""Returns a paper of the index by id."""

Heading = Callable[[Query, Sequence[Hit]], str]
"""Describes hits in a heading."""


def to_record(
    lookup: Lookup,
    query_id: str,
    query: Query,
    hits: Sequence[Hit],
    *,
    first_rank: int = 1,
    explain: bool = False,
) -> dict[str, Any]:
    """Make a record of JSON values of one query's result.

    A query of one aspect has ``paper_id`` and ``facet``, one of several ``aspects``, and each match then
    names its ``aspect``. ``question`` has a question in place of a paper, with the technique (``method``) and
    the ``problem`` that it names, or its ``topic``. Graded hits have ``grades`` by facet, from 0 to 3; hits
    of a mixed list the ``corner`` that they are there for and the ``chance`` that they are as it asks.

    ``explain`` adds the query's sentences (`qbe.search.explain.ExplainedSentence`), the probabilities of
    matched sentences' facets, each hit's component scores, the pair of sentences that contributed most to a
    reranker's score or null, and the transport plan or []. Graded or explained hits have ``in_common``, words
    of techniques that the query's paper has too.

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
    """Title, year, authors, venue, links and abstract of a paper as JSON values."""
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
    """Make a table of one query's result: rank, score, title, year, authors, venue and link as far as known,
    grades of graded papers, and a sentence that matched (`qbe.search.explain.shown`).

    ``title`` makes the heading (None: `heading`), and ``graded_by`` is whose grades they are. A question mark
    follows a facet that is a best guess; parentheses hold the label of a sentence without the facet searched
    for. ``explain`` adds the query's sentences, all matches with labels, and component scores.

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
    """Lay rows out in two columns, the second one wrapped."""
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
    """A paper's first authors, venue and, with ``link``, a link, as far as known."""
    first = [author for author in reference.authors[:MAX_AUTHORS] if author != ET_AL]
    authors = ", ".join(first) + (f" {ET_AL}" if len(first) < len(reference.authors) else "")
    return "; ".join(filter(None, (authors, reference.venue, reference.link if link else "")))


def grades_in_words(hit: Hit, graded_by: str = "") -> str:
    """The grades of a hit by facet, after its shape in a mixed list, and whose they are if not qbe's.

    >>> grades_in_words(Hit("s051", 1.0, grades={"background": 2.61, "method": 0.4}, corner="competitors"))
    'competitors: background 2.6, method 0.4 of 3'
    """
    graded = ", ".join(f"{name} {grade:.1f}" for name, grade in (hit.grades or {}).items()) + " of 3"
    if graded_by:
        graded += f", by {plain(graded_by)}"
    return f"{hit.corner}: {graded}" if hit.corner else graded


def heading(query: Query, hits: Sequence[Hit] = ()) -> str:
    """Describe hits, such as ``Papers like “A title”, for its method``, or with the numbers of hits for each
    shape of a mixed list.

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
    """Describe recommended citations."""
    return f"Papers for “{_title(query.papers[0])}” to cite{_foreign_note(query)}"


def _foreign_note(query: Query) -> str:
    foreign = not all(looks_english(f"{paper.title} {paper.abstract}") for paper in query.papers)
    return " (this does not look like English, which the models read: expect little)" if foreign else ""


def looks_english(text: str) -> bool:
    """True if at least half of the letters of a text are Latin, and frequent words of other languages do not
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
    lines = []
    if scores := hit.component_scores:
        words = [f"{name.replace('_', ' ')} {score:.4f}" for name, score in scores.items()]
        below = "first_stage" in scores and "reranker" not in scores
        lines = _wrapped("", ", ".join([*words, "not reranked"] if below else words), width)
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


def _plan_in_words(plan: Sequence[TransportEntry]) -> str:
    """The masses of a plan from 0.005 on; no-break spaces before masses keep lines from breaking there."""
    entries = [f"{entry.query_position}→{entry.position}{_TIED}{entry.mass:.2f}" for entry in plan]
    return "transport " + ", ".join(entry for entry in entries if not entry.endswith("0.00"))


def _wrapped(first: str, text: str, width: int, *, whole_words: bool = False) -> list[str]:
    """Wrap a text behind a margin, whose first line has ``first``; ``whole_words`` are not broken."""
    return textwrap.wrap(
        plain(text),
        max(width, 2 * INDENT),
        initial_indent=first.ljust(INDENT),
        subsequent_indent=" " * INDENT,
        break_long_words=not whole_words,
        break_on_hyphens=not whole_words,
    )


AUTHOR = 20
"""Columns of a first author in a list of papers."""


def line(paper: Paper, id_width: int) -> str:
    """Describe a paper in one line: id, year, first author and title.

    >>> line(index.paper("s036"), 5)
    's036   2018                       Two Crops of a Paragraph: ... for Suggesting Citations'
    """
    reference = reference_of(paper)
    author = plain(reference.authors[0]) if reference.authors else ""
    if len(reference.authors) > 1:
        author = f"{author[: AUTHOR - 7]} {ET_AL}"
    title = plain(reference.title)
    return f"{paper.paper_id:<{id_width}}  {reference.year:4}  {author[:AUTHOR]:<{AUTHOR}}  {title}"


_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four: = + - @ in full width
"""Beginnings of formulas in spreadsheets."""


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Format rows as CSV, with an apostrophe before texts that spreadsheets would take for formulas.

    >>> print(to_csv([["-1+2", -0.5, "On fish"]]), end="")
    '-1+2,-0.5,On fish
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_guarded, row) for row in rows)
    return text.getvalue()


def _guarded(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = plain(cell)
    return f"'{text}" if text.lstrip(" \N{NO-BREAK SPACE}").startswith(_FORMULAS) else text


_MARKUP = re.compile(r"[\\`*_\[\]<>|&~#$]")
_BEGIN = re.compile(r"(\d*)([-+=.)])")
"""Beginnings of lists and headings."""

_IN_LINKS = str.maketrans({"(": "%28", ")": "%29", "\\": "%5C"})


def to_markdown(
    lookup: Lookup, query: Query, hits: Sequence[Hit], title: Heading = heading, graded_by: str = ""
) -> str:
    """Make Markdown of one query's result: a heading, and a numbered list of titles, each a link where one is
    known, with year, id, score, authors, venue, and a sentence that matched (`qbe.search.explain.shown`).
    ``title`` and ``graded_by`` are those of `to_table`.

    Formulas stay as they are in LaTeX; other characters with a meaning are escaped.

    >>> query = Query(index.paper("s036"), Facet.BACKGROUND)
    >>> print(to_markdown(index.paper, query, [Hit("s051", 1.5, (Match(0, 1, 0.75),))]))
    ## Papers like “Two Crops of a Paragraph: ...”, for its background
    <BLANKLINE>
    1. **Masking Politicians' Words: ... in Claim Verification** (2020). s051, 1.5000
       > background: The question here is whether pre-training on unlabelled speeches helps ...
    """
    lines = [f"## {escaped(title(query, hits))}", ""]
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        said = [credits_of(reference_of(paper), link=False), f"{paper.paper_id}, {hit.score:.4f}"]
        if hit.grades is not None:
            said.append(grades_in_words(hit, graded_by))
        number = f"{rank}. "
        lines.append(f"{number}{linked_title(paper)} {escaped('; '.join(filter(None, said)))}")
        if best := shown(query, paper, hit):
            text = best.prefix + paper.sentences[best.match.position].text
            lines.append(f"{' ' * len(number)}> {escaped(text)}")
    return "\n".join(lines if hits else [*lines, "No paper was found."])


def linked_title(paper: Paper) -> str:
    """The title of a paper in bold, a link where one is known, with the year."""
    reference = reference_of(paper)
    title = f"**{escaped(reference.title or paper.paper_id)}**"
    if reference.link:
        title = f"[{title}]({reference.link.translate(_IN_LINKS)})"
    return f"{title} ({reference.year})." if reference.year else f"{title}."


def escaped(text: str) -> str:
    r"""Escape a text for Markdown, except formulas.

    >>> print(escaped("*Fish* & $x_1$_2"))
    \*Fish\* \& $x_1$\_2
    """
    from qbe.corpus.bibliography import with_formulas

    parts = [part if formula else _MARKUP.sub(r"\\\g<0>", part) for part, formula in with_formulas(text)]
    return _BEGIN.sub(r"\1\\\2", "".join(parts), count=1) if _BEGIN.match(text) else "".join(parts)


COLUMNS = (
    *("query_id", "rank", "paper_id", "title", "authors", "year", "venue", "doi", "url", "score", "facet"),
    *("sentence", *(str(facet) for facet in Facet)),
)
"""The header of CSV."""


class Result(NamedTuple):
    """A query, its id in the run, and its hits."""

    query_id: str
    query: Query
    hits: Sequence[Hit]


class ResultWriter(NamedTuple):
    """Turns results into text: ``text(result, first)``, ``first`` True at the beginning; all texts joined are
    the file. ``needs_matches`` if hits must carry their matches.
    """

    text: Callable[[Result, bool], str]
    needs_matches: bool = True


def open_writer(
    form: str,
    tag: str,
    lookup: Lookup,
    width: int,
    *,
    explain: bool,
    command: str = "qbe search",
    title: Heading = heading,
    graded_by: str = "",
) -> ResultWriter:
    """Open the writer of a format: ``trec``, ``json``, ``table``, ``csv``, ``markdown``, ``bibtex`` or
    ``ris``.

    ``tag`` is that of a TREC run; ``width`` (in columns) is of tables, ``explain`` of tables and JSON (see
    `to_record` and `to_table`, for ``title`` and ``graded_by`` too). CSV has the columns COLUMNS: authors are
    separated by semicolons, ``url`` is the corpus's own, else that of arXiv, ``sentence`` the one that a
    table shows, and ``facet`` its label. In a bibliography a paper has one entry, under the first query that
    found it; in BibTeX a comment names the ``command`` and each query, and the keys of papers found before.

    >>> result = Result("s036", Query(index.paper("s036")), [Hit("s051", 1.5)])
    >>> for form in ("trec", "csv", "bibtex"):
    ...     print(open_writer(form, "qbe-bm25", index.paper, 100, explain=False).text(result, True))
    s036 Q0 s051 1 1.5 qbe-bm25
    <BLANKLINE>
    query_id,rank,paper_id,title,authors,year,venue,doi,url,score,facet,sentence,background,method,result
    s036,1,s051,Masking Politicians' Words: ... in Claim Verification,,2020,,,,1.5,,,,,
    <BLANKLINE>
    %% qbe search: s036
    <BLANKLINE>
    @misc{Anonymous2020masking,
      title = {Masking Politicians' Words: Self-Supervision Brings No Gain in Claim Verification},
      year = {2020},
      abstract = {...},
    }
    <BLANKLINE>
    """
    if form == "trec":
        from qbe.runs import format_run

        return ResultWriter(lambda result, _: format_run(tag, {result.query_id: result.hits}), False)
    if form == "json":

        def to_json(result: Result, _: bool) -> str:
            record = to_record(lookup, *result, explain=explain)
            return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"

        return ResultWriter(to_json)
    if form == "csv":
        return ResultWriter(partial(_csv, lookup))
    if form in ("bibtex", "ris"):
        from qbe.corpus.bibliography import Bibliography

        write = partial(_bibtex, command) if form == "bibtex" else _ris
        return ResultWriter(partial(write, lookup, Bibliography(form)), needs_matches=False)

    def text(result: Result, first: bool) -> str:
        _, query, hits = result
        if form == "markdown":
            made = to_markdown(lookup, query, hits, title, graded_by)
        else:
            made = to_table(lookup, query, hits, width, explain=explain, title=title, graded_by=graded_by)
        return ("" if first else "\n") + made + "\n"

    return ResultWriter(text)


def _csv(lookup: Lookup, result: Result, first: bool) -> str:
    rows: list[Iterable[object]] = [COLUMNS] if first else []
    query_id, query, hits = result
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        reference = reference_of(paper)
        best = shown(query, paper, hit)
        sentence = paper.sentences[best.match.position] if best else Sentence("")
        grades = hit.grades or {}
        rows.append(
            (
                *(query_id, rank, hit.paper_id, reference.title, "; ".join(reference.authors)),
                *(reference.year, reference.venue, reference.doi, reference.page, hit.score),
                *(sentence.facet.value if sentence.facet else "", sentence.text),
                *(grades.get(facet.value, "") for facet in Facet),
            )
        )
    return to_csv(rows)


def _bibtex(command: str, lookup: Lookup, bibliography: Bibliography, result: Result, first: bool) -> str:
    from qbe.corpus.bibliography import comment

    query_id, _, hits = result
    entries = [(hit.paper_id, bibliography.add(lookup(hit.paper_id))) for hit in hits]
    above = [bibliography.key(paper_id) for paper_id, entry in entries if entry is None]
    about = comment(f"above: {', '.join(above)}") if above else ""
    parts = [comment(f"{command}: {query_id}") + about, *(entry for _, entry in entries if entry)]
    return ("" if first else "\n") + "\n".join(parts)


def _ris(lookup: Lookup, bibliography: Bibliography, result: Result, _: bool) -> str:
    records = (bibliography.add(lookup(hit.paper_id)) for hit in result.hits)
    return "".join(f"{record}\n" for record in records if record is not None)
