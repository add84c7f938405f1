"""Results as text: a TREC run, lines of JSON, tables, CSV, Markdown, and bibliographies."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from qbe.bibliography.bibtex import comment
from qbe.bibliography.latex import with_formulas
from qbe.bibliography.reference import reference_of
from qbe.bibliography.writing import Bibliography
from qbe.plain import plain
from qbe.query import Query
from qbe.search.explain import shown
from qbe.search.present import Lookup, credits_of, grades_in_words, heading, to_record, to_table
from qbe.trec import format_run
from qbe.types import Facet, Hit, Paper, Sentence

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


def to_markdown(lookup: Lookup, query: Query, hits: Sequence[Hit]) -> str:
    """One query's result: a heading and a numbered list of titles, each a link where one is known, with year,
    paper id, score, authors and venue, and a sentence that matched (see `qbe.search.explain.shown`).

    Formulas stay as they are in LaTeX; other characters with a meaning are escaped.

    >>> from qbe.types import Facet, Match
    >>> query = Query(index.paper("s036"), Facet.BACKGROUND)
    >>> print(to_markdown(index.paper, query, [Hit("s051", 1.5, (Match(0, 1, 0.75),))]))
    ## Papers like “Two Crops of a Paragraph: ...”, for its background
    <BLANKLINE>
    1. **Masking Politicians' Words: ... in Claim Verification** (2020). s051, 1.5000
       > background: The question here is whether pre-training on unlabelled speeches helps ...
    """
    lines = [f"## {escaped(heading(query))}", ""]
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        said = [credits_of(reference_of(paper), link=False), f"{paper.paper_id}, {hit.score:.4f}"]
        if hit.grades is not None:
            said.append(grades_in_words(hit.grades))
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


class ResultWriter(Protocol):
    """Turns results into text; texts of consecutive blocks, joined, are the text of all."""

    @property
    def needs_matches(self) -> bool:
        """Whether hits must carry their matches."""

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """The text of a block; ``first`` is True for the block at the beginning."""


class TrecWriter:
    """A TREC run.

    >>> result = Result("s036", Query(index.paper("s036")), [Hit("s051", 1.5), Hit("s001", 1.25)])
    >>> print(TrecWriter("qbe-bm25").text([result], first=True))
    s036 Q0 s051 1 1.5 qbe-bm25
    s036 Q0 s001 2 1.25 qbe-bm25
    """

    needs_matches = False

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def text(self, results: Sequence[Result], *, first: bool) -> str:  # noqa: ARG002
        """Lines of ``query_id Q0 paper_id rank score tag``."""
        return format_run(self._tag, {query_id: hits for query_id, _, hits in results})


class JsonWriter:
    """One JSON object a query and line (see `qbe.search.present.to_record`).

    >>> result = Result("s036", Query(index.paper("s036")), [])
    >>> print(JsonWriter(index.paper, explain=False).text([result], first=True))
    {"query_id": "s036", "paper_id": "s036", "facet": null, "hits": []}
    """

    needs_matches = True

    def __init__(self, lookup: Lookup, *, explain: bool) -> None:
        self._lookup, self._explain = lookup, explain

    def text(self, results: Sequence[Result], *, first: bool) -> str:  # noqa: ARG002
        """Lines of JSON."""
        records = (to_record(self._lookup, *result, explain=self._explain) for result in results)
        return "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)


class TableWriter:
    """Tables for people, with empty lines in between (see `qbe.search.present.to_table`).

    >>> result = Result("s036", Query(index.paper("s036")), [])
    >>> print(TableWriter(index.paper, 100, explain=False).text([result], first=True))
    Papers like “Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations”, by its
    abstract:
    No paper was found.
    """

    needs_matches = True

    def __init__(self, lookup: Lookup, width: int, *, explain: bool, highlight: bool = False) -> None:
        """``width`` is the number of columns; ``highlight`` is for a terminal (see `to_table`)."""
        self._lookup, self._width = lookup, width
        self._explain, self._highlight = explain, highlight

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """Tables."""
        tables = (
            to_table(self._lookup, query, hits, self._width, explain=self._explain, highlight=self._highlight)
            for _, query, hits in results
        )
        return ("" if first else "\n") + "\n\n".join(tables) + "\n"


class CsvWriter:
    """CSV, a line a hit, behind a header (COLUMNS).

    ``authors`` are separated by semicolons; ``url`` is the corpus's own, else that of arXiv; ``sentence`` is
    the one that a table shows (see `qbe.search.explain.shown`), and ``facet`` what it is labelled. The last
    columns are the grades, where papers were graded. A text that a spreadsheet would take for a formula has
    an apostrophe before it.

    >>> result = Result("s036", Query(index.paper("s036")), [Hit("s051", 1.5)])
    >>> print(CsvWriter(index.paper).text([result], first=True))
    query_id,rank,paper_id,title,authors,year,venue,doi,url,score,facet,sentence,background,method,result
    s036,1,s051,Masking Politicians' Words: ... in Claim Verification,,2020,,,,1.5,,,,,
    <BLANKLINE>
    """

    needs_matches = True

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """Lines; the first block begins with the header."""
        rows = (
            [query_id, rank, *self._row(query, hit)]
            for query_id, query, hits in results
            for rank, hit in enumerate(hits, start=1)
        )
        return to_csv([COLUMNS, *rows] if first else rows)

    def _row(self, query: Query, hit: Hit) -> list[object]:
        paper = self._lookup(hit.paper_id)
        reference = reference_of(paper)
        title, *about = reference.title, reference.year, reference.venue, reference.doi, reference.page
        best = shown(query, paper, hit)
        sentence = paper.sentences[best.match.position] if best else Sentence("")
        facet = sentence.facet.value if sentence.facet else ""
        authors, grades = "; ".join(reference.authors), hit.grades or {}
        by_facet = [grades.get(facet.value, "") for facet in Facet]
        return [hit.paper_id, title, authors, *about, hit.score, facet, sentence.text, *by_facet]


class MarkdownWriter:
    """Lists in Markdown, each behind a heading (see `qbe.search.writers.to_markdown`).

    >>> result = Result("s036", Query(index.paper("s036")), [])
    >>> print(MarkdownWriter(index.paper).text([result], first=True))
    ## Papers like “Two Crops of a Paragraph: ...”, by its abstract
    <BLANKLINE>
    No paper was found.
    <BLANKLINE>
    """

    needs_matches = True

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """Headings and lists."""
        lists = (to_markdown(self._lookup, query, hits) for _, query, hits in results)
        return ("" if first else "\n") + "\n\n".join(lists) + "\n"


class BibtexWriter:
    """BibTeX. A comment names each query; a paper has one entry, under the first query that found it, and the
    comment of a later query has its key.

    >>> results = [Result(name, Query(index.paper("s036")), [Hit("s051", 1.5)]) for name in ("q1", "q2")]
    >>> print(BibtexWriter(index.paper).text(results, first=True))
    %% qbe search: q1
    <BLANKLINE>
    @misc{Anonymous2020masking,
      title = {Masking Politicians' Words: Self-Supervision Brings No Gain in Claim Verification},
      year = {2020},
      abstract = {...},
    }
    <BLANKLINE>
    %% qbe search: q2
    %% above: Anonymous2020masking
    <BLANKLINE>
    """

    needs_matches = False

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._bibliography = Bibliography("bibtex")

    def text(self, results: Sequence[Result], *, first: bool) -> str:
        """Comments and entries, with empty lines in between."""
        parts = []
        for query_id, _, hits in results:
            entries = [(hit.paper_id, self._bibliography.add(self._lookup(hit.paper_id))) for hit in hits]
            above = [self._bibliography.key(paper_id) for paper_id, entry in entries if entry is None]
            about = comment(f"above: {', '.join(above)}") if above else ""
            parts += [comment(f"qbe search: {query_id}") + about, *(entry for _, entry in entries if entry)]
        return ("" if first else "\n") + "\n".join(parts)


class RisWriter:
    """RIS: the records of all hits, each paper's once, in the order in which queries found them.

    >>> results = [Result(name, Query(index.paper("s036")), [Hit("s051", 1.5)]) for name in ("q1", "q2")]
    >>> print(RisWriter(index.paper).text(results, first=True))
    TY  - GEN
    DP  - qbe
    ID  - s051
    TI  - Masking Politicians' Words: Self-Supervision Brings No Gain in Claim Verification
    PY  - 2020
    AB  - ...
    ER  -
    <BLANKLINE>
    """

    needs_matches = False

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._bibliography = Bibliography("ris")

    def text(self, results: Sequence[Result], *, first: bool) -> str:  # noqa: ARG002
        """Records, each with an empty line behind it."""
        records = (
            self._bibliography.add(self._lookup(hit.paper_id)) for _, _, hits in results for hit in hits
        )
        return "".join(f"{record}\n" for record in records if record is not None)


def open_writer(
    form: str, tag: str, lookup: Lookup, width: int, *, explain: bool, highlight: bool = False
) -> ResultWriter:
    """The writer of a format: ``trec``, ``json``, ``table``, ``csv``, ``markdown``, ``bibtex`` or ``ris``.

    ``tag`` is that of a TREC run; ``width`` (in columns) and ``highlight`` (words in common in bold, for a
    terminal) are of tables, and ``explain`` of tables and JSON.

    >>> open_writer("json", "qbe", index.paper, 100, explain=False).needs_matches
    True
    """
    writers: dict[str, Callable[[], ResultWriter]] = {
        "trec": lambda: TrecWriter(tag),
        "json": lambda: JsonWriter(lookup, explain=explain),
        "table": lambda: TableWriter(lookup, width, explain=explain, highlight=highlight),
        "csv": lambda: CsvWriter(lookup),
        "markdown": lambda: MarkdownWriter(lookup),
        "bibtex": lambda: BibtexWriter(lookup),
        "ris": lambda: RisWriter(lookup),
    }
    return writers[form]()
