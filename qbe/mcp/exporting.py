"""The tool that gives papers as the content of a file, in parts where it is long."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from qbe.errors import UsageError
from qbe.mcp.answers import Exported
from qbe.mcp.arguments import Arguments
from qbe.mcp.cutting import LIMIT, fits
from qbe.service.requests import MOST_SEEN, Export, PaperId
from qbe.service.service import SearchService


class ExportCitations(Arguments):
    """The arguments of ``export_citations``."""

    paper_ids: list[PaperId] = Field(
        min_length=1, max_length=MOST_SEEN, description="Ids of papers of the index, in the order wanted."
    )
    format: Literal["bibtex", "ris", "csv", "markdown", "json"] = Field(
        default="bibtex",
        description="All but markdown have abstracts; json has a line a paper, with the facets of sentences.",
    )
    start: int = Field(
        default=0,
        ge=0,
        lt=MOST_SEEN,
        description="How many of paper_ids to skip: next_start of the answer before, with the same "
        "paper_ids and format.",
    )

    def answer(self, service: SearchService) -> Exported:
        """Export as many papers as fit, one at least."""
        ids = list(dict.fromkeys(self.paper_ids))
        if self.start >= len(ids):
            raise UsageError(f"expected `start` below the number of papers, {len(ids)}, found {self.start}")
        before = self._file(service, ids[: self.start]) if self.start else ""

        def part(end: int) -> Exported:
            """The papers from ``start`` to ``end``: what the file gets longer by."""
            has_more = end < len(ids)
            return Exported(
                format=self.format,
                papers=end - self.start,
                text=self._file(service, ids[:end]).removeprefix(before),
                has_more=has_more,
                next_start=end if has_more else None,
                cut=self._cut(end, len(ids)) if has_more else None,
            )

        longest = part(len(ids))
        if fits(longest):
            return longest
        low, high = self.start, len(ids)  # what ends at high does not fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(part(middle)) else (low, middle)
        if low == self.start:
            raise UsageError(
                f"expected papers whose {self.format} is below {LIMIT // 1000} kB, found {ids[low]} longer; "
                "leave it out, or choose markdown as format"
            )
        return part(low)

    def _file(self, service: SearchService, ids: list[str]) -> str:
        return service.export(Export(paper_ids=ids, format=self.format))

    def _cut(self, end: int, papers: int) -> str:
        return (
            f"To stay below {LIMIT // 1000} kB, the last {papers - end} of {papers} papers were left out "
            f"(call again with start={end}; the texts joined are the file)."
        )
