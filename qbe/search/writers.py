"""Results as text: a TREC run, lines of JSON, tables, CSV, Markdown, and bibliographies."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from qbe.corpus.bibliography import reference_of
from qbe.query import Query
from qbe.search.explain import shown
from qbe.search.present import Heading, Lookup, credits_of, grades_in_words, heading, to_record, to_table
from qbe.types import Facet, Hit, Paper, Sentence
from qbe.util.text import plain

if TYPE_CHECKING:
    from qbe.corpus.bibliography import Bibliography

_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four: = + - @ in full width
"""What a spreadsheet takes for the beginning of a formula."""


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as lines of CSV, with an apostrophe before a text that would be a formula; numbers stay.

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


_MEANT = re.compile(r"[\\`*_\[\]<>|&~#$]")
_BEGIN = re.compile(r"(\d*)([-+=.)])")
"""What would begin a list or a heading."""

_IN_LINKS = str.maketrans({"(": "%28", ")": "%29", "\\": "%5C"})


def to_markdown(
    lookup: Lookup, query: Query, hits: Sequence[Hit], title: Heading = heading, graded_by: str = ""
) -> str:
    """One query's result: a heading and a numbered list of titles, each a link where one is known, with year,
    paper id, score, authors and venue, and a sentence that matched (see `qbe.search.explain.shown`);
    ``title`` makes the heading, and ``graded_by`` is whose grades they are.

    Formulas stay as they are in LaTeX; other characters with a meaning are escaped.

    >>> from qbe.types import Facet, Match
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
    """The title of a paper in bold, a link where one is known, with the year.

    >>> linked_title(Paper("7", "On fish", (), metadata={"year": 2019, "url": "https://example.org/7"}))
    '[**On fish**](https://example.org/7) (2019).'
    """
    reference = reference_of(paper)
    title = f"**{escaped(reference.title or paper.paper_id)}**"
    if reference.link:
        title = f"[{title}]({reference.link.translate(_IN_LINKS)})"
    return f"{title} ({reference.year})." if reference.year else f"{title}."


def escaped(text: str) -> str:
    r"""A text in Markdown, with formulas as they are.

    >>> print(escaped("*Fish* & $x_1$_2"))
    \*Fish\* \& $x_1$\_2
    """
    from qbe.corpus.bibliography import with_formulas

    parts = [part if formula else _MEANT.sub(r"\\\g<0>", part) for part, formula in with_formulas(text)]
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
    """Turns results into text: ``text(results, first)`` is that of a block of consecutive results, ``first``
    True for the one at the beginning; the texts of all blocks, joined, are the text of all.

    ``needs_matches`` says whether hits must carry their matches.
    """

    text: Callable[[Sequence[Result], bool], str]
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
    """The writer of a format: ``trec``, ``json``, ``table``, ``csv``, ``markdown``, ``bibtex`` or ``ris``.

    ``tag`` is that of a TREC run; ``width`` (in columns) is of tables, and ``explain`` of tables and JSON
    (see `qbe.search.present.to_record` and `to_table`, for ``title`` and ``graded_by`` too). CSV has the
    columns COLUMNS: authors are separated by semicolons, ``url`` is the corpus's own, else that of arXiv,
    ``sentence`` is the one that a table shows, and ``facet`` what it is labelled. In a bibliography a paper
    has one entry, under the first query that found it; in BibTeX a comment names the ``command`` and each
    query, and the keys of papers that an earlier one found.

    >>> result = Result("s036", Query(index.paper("s036")), [Hit("s051", 1.5)])
    >>> for form in ("trec", "csv", "bibtex"):
    ...     print(open_writer(form, "qbe-bm25", index.paper, 100, explain=False).text([result], True))
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
        return ResultWriter(lambda results, _: _trec(tag, results), needs_matches=False)
    if form == "json":
        return ResultWriter(lambda results, _: _json(lookup, results, explain=explain))
    if form == "csv":
        return ResultWriter(lambda results, first: _csv(lookup, results, first=first))
    if form in ("bibtex", "ris"):
        from qbe.corpus.bibliography import Bibliography

        bibliography = Bibliography(form)
        text = _bibtex(lookup, bibliography, command) if form == "bibtex" else _ris(lookup, bibliography)
        return ResultWriter(text, needs_matches=False)
    if form == "markdown":
        return _texts_apart(lambda query, hits: to_markdown(lookup, query, hits, title, graded_by))
    table = partial(to_table, explain=explain, title=title, graded_by=graded_by)
    return _texts_apart(lambda query, hits: table(lookup, query, hits, width))


def _texts_apart(text_of: Callable[[Query, Sequence[Hit]], str]) -> ResultWriter:
    """Writes the texts of queries with empty lines in between."""

    def text(results: Sequence[Result], first: bool) -> str:
        texts = (text_of(query, hits) for _, query, hits in results)
        return ("" if first else "\n") + "\n\n".join(texts) + "\n"

    return ResultWriter(text)


def _trec(tag: str, results: Sequence[Result]) -> str:
    from qbe.runs import format_run

    return format_run(tag, {query_id: hits for query_id, _, hits in results})


def _json(lookup: Lookup, results: Sequence[Result], *, explain: bool) -> str:
    """One JSON object a query and line."""
    records = (to_record(lookup, *result, explain=explain) for result in results)
    return "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)


def _csv(lookup: Lookup, results: Sequence[Result], *, first: bool) -> str:
    rows = (
        [query_id, rank, *_csv_row(lookup, query, hit)]
        for query_id, query, hits in results
        for rank, hit in enumerate(hits, start=1)
    )
    return to_csv([COLUMNS, *rows] if first else rows)


def _csv_row(lookup: Lookup, query: Query, hit: Hit) -> list[object]:
    paper = lookup(hit.paper_id)
    reference = reference_of(paper)
    title, *about = reference.title, reference.year, reference.venue, reference.doi, reference.page
    best = shown(query, paper, hit)
    sentence = paper.sentences[best.match.position] if best else Sentence("")
    facet = sentence.facet.value if sentence.facet else ""
    authors, grades = "; ".join(reference.authors), hit.grades or {}
    by_facet = [grades.get(facet.value, "") for facet in Facet]
    return [hit.paper_id, title, authors, *about, hit.score, facet, sentence.text, *by_facet]


def _bibtex(
    lookup: Lookup, bibliography: Bibliography, command: str
) -> Callable[[Sequence[Result], bool], str]:
    from qbe.corpus.bibliography import comment

    def text(results: Sequence[Result], first: bool) -> str:
        parts = []
        for query_id, _, hits in results:
            entries = [(hit.paper_id, bibliography.add(lookup(hit.paper_id))) for hit in hits]
            above = [bibliography.key(paper_id) for paper_id, entry in entries if entry is None]
            about = comment(f"above: {', '.join(above)}") if above else ""
            parts += [comment(f"{command}: {query_id}") + about, *(entry for _, entry in entries if entry)]
        return ("" if first else "\n") + "\n".join(parts)

    return text


def _ris(lookup: Lookup, bibliography: Bibliography) -> Callable[[Sequence[Result], bool], str]:
    def text(results: Sequence[Result], _: bool) -> str:
        records = (bibliography.add(lookup(hit.paper_id)) for _, _, hits in results for hit in hits)
        return "".join(f"{record}\n" for record in records if record is not None)

    return text
