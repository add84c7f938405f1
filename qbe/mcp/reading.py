"""The tools that read papers: one as it is, the facets of a text, two papers compared."""

from __future__ import annotations

from pydantic import Field

from qbe.errors import UsageError
from qbe.mcp.answers import LONG, SHORT, Alike, Compared, ComparedPaper, FullPaper, Sentences, clipped
from qbe.mcp.arguments import Arguments
from qbe.mcp.cutting import fitting_sentences
from qbe.mcp.records import described, sentences_of, year_of
from qbe.service.records import Record
from qbe.service.requests import Abstract, Comparison, PaperId, PastedText, Title
from qbe.service.service import SearchService

_START = "The position of the first sentence to give; only needed where an answer says so."


class GetPaper(Arguments):
    """The arguments of ``get_paper``."""

    paper_id: PaperId = Field(description="The id of a paper of the index.")
    start: int = Field(default=0, ge=0, description=_START)

    def answer(self, service: SearchService) -> FullPaper:
        """Read a paper."""
        record = service.paper(self.paper_id)
        paper = FullPaper(
            **described(record), sentences=sentences_of(record["sentences"]), has_more=False, next_start=None
        )
        return fitting_sentences(paper, _within(self.start, len(paper.sentences)))


class LabelFacets(Arguments):
    """The arguments of ``label_facets``."""

    text: Abstract = Field(min_length=1, description="An abstract, in English.")
    title: Title = Field(default="", description="Its title, if there is one.")
    start: int = Field(default=0, ge=0, description=_START)

    def answer(self, service: SearchService) -> Sentences:
        """Label the sentences of a text."""
        record = service.label(PastedText(text=self.text, title=self.title))
        labelled = Sentences(
            title=clipped(record["title"], SHORT),
            sentences=sentences_of(record["sentences"]),
            has_more=False,
            next_start=None,
        )
        return fitting_sentences(labelled, _within(self.start, len(labelled.sentences)))


class ComparePapers(Arguments):
    """The arguments of ``compare_papers``."""

    a: PaperId = Field(description="The id of a paper of the index.")
    b: PaperId = Field(description="The id of the paper to compare it with.")

    def answer(self, service: SearchService) -> Compared:
        """Compare two papers."""
        record = service.compare(Comparison(paper_id=self.a, other_id=self.b))
        facets = record["facets"]
        return Compared(
            a=_named(record["paper"]),
            b=_named(record["other"]),
            background=_alike(facets["background"]),
            method=_alike(facets["method"]),
            result=_alike(facets["result"]),
        )


def _within(start: int, sentences: int) -> int:
    if start and start >= sentences:
        raise UsageError(f"expected `start` below the number of sentences, {sentences}, found {start}")
    return start


def _alike(facet: Record) -> Alike:
    pair = facet["pair"]
    if pair is None:
        return Alike(grade=facet["grade"], sentence_a=None, sentence_b=None, similarity=None)
    return Alike(
        grade=facet["grade"],
        sentence_a=clipped(pair["sentence"], LONG),
        sentence_b=clipped(pair["other_sentence"], LONG),
        similarity=pair["score"],
    )


def _named(record: Record) -> ComparedPaper:
    title = clipped(record["title"], SHORT)
    return ComparedPaper(paper_id=record["paper_id"], title=title, year=year_of(record))
