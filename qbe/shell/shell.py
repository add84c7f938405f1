"""A service on a terminal, command by command."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from qbe.errors import OutputError, QbeError, UsageError
from qbe.files import write_text
from qbe.plain import plain
from qbe.query import Query
from qbe.search.filters import parse_years
from qbe.search.present import columns, hits_table, to_table
from qbe.search.session import RERANKED
from qbe.service.requests import Export, RecommendationBody, SearchBody
from qbe.service.service import HitPage, Limits, SearchService
from qbe.shapes import parse_positions
from qbe.shell.terminal import ALL, FORMATS, SEEDS, Terminal
from qbe.types import Hit, Paper

PATIENT = Limits(first_stage=60.0, reranked=600.0, search=600.0)
"""Nobody else waits for a shell's searches."""

_FORMS = ("facet", "sentences", "like", "unlike", "explore")
"""Fields of which one, or like with unlike, says which part of the papers forms the query."""


class Shell(Terminal):
    """Searches, changed command by command. One that fails changes nothing."""

    def __init__(self, service: SearchService, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(service, stdin, stdout, stderr)
        self._reranks = service.reranks_at_once
        self._fields: dict[str, Any]
        self._hits: dict[int, Hit]
        self._query: Query | None
        self._next: tuple[Callable[[int], HitPage], int] | None  # the next page, and where it starts
        self.do_reset("")

    def do_paper(self, argument: str) -> None:
        """ID ...: search for papers like one of the index, or several."""
        if not argument:
            raise UsageError("expected the id of a paper, found none; Tab completes it")
        self._search_with(paper_ids=list(dict.fromkeys(argument.split())))

    def do_text(self, argument: str) -> None:
        """[TITLE]: search with an abstract; paste it, and end with an empty line or a dot."""
        self.hint("Paste an abstract; an empty line, or a dot, ends it.")
        lines: list[str] = []
        while (line := self.line()) is not None and line.strip() != ".":
            if line.strip():
                lines.append(line)
            elif lines:
                break
        if not lines:
            raise UsageError("expected an abstract, found none")
        self._search_with(text="\n".join(lines), title=argument)

    def do_facet(self, argument: str) -> None:
        """background|method|result|all: what hits should have in common with it."""
        self._search_by(facet=None if argument == ALL else argument or " ")

    def do_like(self, argument: str) -> None:
        """FACET[:WEIGHT] ... [unlike FACET ...]: several facets to have in common, others to differ in."""
        like, _, unlike = f" {argument.replace(',', ' ')} ".partition(" unlike ")
        if not like.split():
            raise UsageError("expected facets such as method or method:0.5, found none")
        self._search_by(like=like.split(), unlike=unlike.split())

    def do_explore(self, argument: str) -> None:
        """SHAPE: same-problem-other-method, same-method-other-problem or competitors, in place of both."""
        self._search_by(explore=argument or " ")

    def do_sentences(self, argument: str) -> None:
        """0,2: search with these sentences alone; show has their positions."""
        self._search_by(sentences=list(parse_positions(",".join(argument.replace(",", " ").split()))))

    def do_year(self, argument: str) -> None:
        """2015-2019: only papers of these years; also 2015-, -2019, 2018, all."""
        years, of_query = (None, None) if argument == ALL else parse_years(argument)
        if of_query:
            raise UsageError(
                f"expected years such as 2015-2019, 2015-, -2019, 2018 or all, found {argument!r}"
            )
        first, last = years or (None, None)
        self._search(self._fields | {"year_from": first, "year_to": last})

    def do_category(self, argument: str) -> None:
        """NAME ...: only papers of these categories, such as cs.CL, or cs; all for any."""
        names = argument.replace(",", " ").split()
        if not names:
            raise UsageError("expected categories such as cs.CL, or all, found none")
        self._search(self._fields | {"categories": [] if names == [ALL] else names})

    def do_k(self, argument: str) -> None:
        """N: hits at a time."""
        if not (argument.isascii() and argument.isdigit()):
            raise UsageError(f"expected a number of hits, found {argument!r}")
        self._search(self._fields | {"k": int(argument)})

    def do_more(self, argument: str) -> None:
        """The next hits."""
        self._check_alone(argument)
        if self._next is None:
            raise UsageError(
                "expected further hits, found none" if self._hits else "expected a search before"
            )
        further, start = self._next
        self._show(further(start), "", further)

    def do_why(self, argument: str) -> None:
        """N: the sentences of the query and of hit N that are closest."""
        hits, lookup = self._numbered(argument), self.service.index.paper
        assert self._query is not None  # there are hits
        for number, hit in hits.items():
            table = to_table(lookup, self._query, [hit], self.width, explain=True, first_rank=number)
            self.write(table)

    def do_show(self, argument: str) -> None:
        """[N|ID]: the abstract of a hit or a paper with its facets; alone, what is searched with."""
        if not argument:
            if self._query is None:
                raise UsageError("expected something to show; begin with paper ID or text")
            self.write("\n\n".join(self._abstract(paper) for paper in self._query.papers))
            return
        index = self.service.index
        is_id = argument in index and not (argument.isdecimal() and int(argument) in self._hits)
        ids = [argument] if is_id else self._ids(argument)
        self.write("\n\n".join(self._abstract(index.paper(paper_id)) for paper_id in ids))

    def do_seed(self, argument: str) -> None:
        """N ...: search with these hits too."""
        if "text" in self._fields:
            self.write("The search goes on from these papers, without the text.")
        ids = self._ids(argument)
        fields = self._moved(ids, "paper_ids", "not_paper_ids")
        self._search(self._fields | fields | {"text": None, "title": ""})

    def do_not(self, argument: str) -> None:
        """N ...: what is like these hits comes later."""
        fields = self._moved(self._ids(argument), "not_paper_ids", "paper_ids")
        if not fields["paper_ids"] and "text" not in self._fields:
            raise UsageError("expected a paper that the search starts from to be left, found none")
        self._search(self._fields | fields)

    def do_seen(self, argument: str) -> None:
        """N ...: leave these hits out from the next search on."""
        seen = list(dict.fromkeys([*self._fields.get("exclude", ()), *self._ids(argument)]))
        self._fields["exclude"] = seen
        self.write(f"Left out from the next search on: {_count(seen)}.")

    def _ids(self, argument: str) -> list[str]:
        return [hit.paper_id for hit in self._numbered(argument).values()]

    def _moved(self, ids: list[str], to: str, out_of: str) -> dict[str, list[str]]:
        """Two fields of ids, after these were added to one and removed from the other."""
        kept = [each for each in self._fields.get(out_of, ()) if each not in ids]
        return {out_of: kept, to: list(dict.fromkeys([*self._fields.get(to, ()), *ids]))}

    def do_seeds(self, argument: str) -> None:
        """What is searched with at the moment."""
        self._check_alone(argument)
        names = {"paper_ids": "paper", "not_paper_ids": "not", "categories": "category", "exclude": "seen"}
        papers = {"paper_ids", "not_paper_ids"}
        rows = []
        for field, value in self._fields.items():
            for each in value if isinstance(value, list) else [value]:
                title = f"  {self.service.index.paper(each).title}" if field in papers else ""
                rows.append((names.get(field, field), plain(f"{each}{title}")))
        rows.append(("rerank", "on" if self._reranks else "off"))
        self.write("\n".join(columns(rows, self.width)))

    def do_cite(self, argument: str) -> None:
        """Papers that it should cite."""
        self._check_alone(argument)
        self._check_source()
        self._refresh()
        fields = {
            name: value for name, value in self._fields.items() if name in RecommendationBody.model_fields
        }

        def page(start: int) -> HitPage:
            return self.service.recommendations(RecommendationBody(**fields, start=start))

        self._hits = {}
        first = page(0)
        self._show(first, f"{first.heading}:", page)

    def do_export(self, argument: str) -> None:
        """FORMAT FILE [N ...|seeds]: write all hits shown, these, or the seeds."""
        try:
            form, name, *chosen = shlex.split(argument)
        except ValueError:
            formats = ", ".join(FORMATS)
            raise UsageError(f"expected a format ({formats}) and a file, found {argument!r}") from None
        if chosen == [SEEDS]:
            ids = self._fields.get("paper_ids", [])
        else:
            ids = self._ids(" ".join(chosen) or f"1-{len(self._hits)}")
        if not ids:
            raise UsageError("expected papers to export, found none")
        text = self.service.export(Export.model_validate({"paper_ids": ids, "format": form}))
        path = Path(name).expanduser()
        if "\0" in name or path.exists():
            raise OutputError(f"{path}: expected the name of a new file, found one; choose another name")
        write_text(path, text)
        self.write(f"{_count(ids)} written to {name}.")

    def do_rerank(self, argument: str) -> None:
        """on|off: whether hits are reranked, which can take seconds."""
        if argument not in ("on", "off"):
            raise UsageError(f"expected on or off, found {argument!r}")
        is_new, self._reranks = self._reranks != (argument == "on"), argument == "on"
        if is_new and self._has_source(self._fields):
            self._search(self._fields)

    def do_reset(self, argument: str) -> None:
        """Start over."""
        self._check_alone(argument)
        self._fields, self._hits, self._query, self._next = {"k": 10}, {}, None, None

    def do_help(self, argument: str) -> None:
        """[COMMAND]: this list."""
        rows = []
        for name in [argument] if argument else self.commands:
            usage, _, text = f"{self.handler(name).__doc__}".rpartition(": ")
            text = text if usage else text[:1].lower() + text[1:]
            rows.append((f"{name} {usage}".strip(), text.removesuffix(".")))
        self.write("\n".join(columns(rows, self.width)))

    def do_quit(self, argument: str) -> bool:
        """End; so does Ctrl-D."""
        self._check_alone(argument)
        return True

    # What commands have in common.

    def _search_with(self, **source: object) -> None:
        """Search from another source; sentences, and papers that hits should not be like, belonged to the
        one before.
        """
        dropped = ("paper_ids", "text", "title", "sentences", "not_paper_ids")
        self._search({name: value for name, value in self._fields.items() if name not in dropped} | source)

    def _search_by(self, **form: object) -> None:
        """Search by another part of the papers."""
        self._search({name: value for name, value in self._fields.items() if name not in _FORMS} | form)

    @staticmethod
    def _has_source(fields: dict[str, Any]) -> bool:
        return bool(fields.get("paper_ids") or fields.get("text"))

    def _search(self, fields: dict[str, Any]) -> None:
        """Search, and show the hits of the first stage at once. Without anything to search with, the fields
        are only checked and kept.
        """
        fields = {name: value for name, value in fields.items() if value not in (None, "", [])}
        if not self._has_source(fields):
            SearchBody(**fields, text="checked")
            self._fields = fields
            self.hint("Begin with paper ID or text.")
            return
        self._refresh()
        body = SearchBody(**fields, rerank=self._reranks)

        def page(start: int) -> HitPage:
            return self.service.page(body.model_copy(update={"start": start}))

        for found in self.service.pages(body):
            self._hits, self._fields, self._query = {}, fields, found.ranking.query
            self._show(found, f"{found.heading}{', reranked' * (found.ranking.stage == RERANKED)}:", page)
            if not found.ranking.is_final:
                self.hint("\nreranking ...")

    def _show(self, page: HitPage, title: str, further: Callable[[int], HitPage]) -> None:
        """Write a page of hits, and how it was found."""
        start = page.next_start
        self._next = None if start is None else (further, start)
        self._hits |= dict(enumerate(page.hits, start=page.start + 1))
        notes = [*page.ranking.notes, *(["more shows the next hits"] if start is not None else [])]
        table = hits_table(
            self.service.index.paper, page.ranking.query, page.hits, self.width, first_rank=page.start + 1
        )
        heading = "\n".join(textwrap.wrap(plain(title), self.width))
        self.write("\n\n".join(filter(None, (heading, table, "; ".join([f"{page.seconds:.2f} s", *notes])))))

    def _numbered(self, argument: str) -> dict[int, Hit]:
        """The hits of numbers such as ``1 3 5-7``."""
        last = max(self._hits, default=0)
        numbers: list[int] = []
        for word in argument.replace(",", " ").split():
            match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word, re.ASCII)
            chosen = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
            if not chosen or not set(chosen[:1]) | set(chosen[-1:]) <= self._hits.keys():
                raise UsageError(
                    f"expected numbers of hits from 1 to {last}, such as 1 3 5-7, found {word!r}"
                )
            numbers += chosen
        if not numbers:
            raise UsageError("expected numbers of hits, such as 1 3 5-7, found none")
        return {number: self._hits[number] for number in numbers}

    def _abstract(self, paper: Paper) -> str:
        """A paper with its sentences, their positions and facets; those searched with are marked."""
        query = self._query
        aspects = [each for each in query.aspects if each.paper == paper and each.weight > 0] if query else []
        selected = {position for aspect in aspects for position in aspect.selected_positions()}
        rows = [
            (
                f"{'*' * (position in selected)}{position}",
                f"{sentence.facet or 'other'}: {plain(sentence.text)}",
            )
            for position, sentence in enumerate(paper.sentences)
        ]
        year = f" ({plain(paper.year)})" if paper.year else ""
        title = f"{plain(paper.title or 'untitled')}{year}  [{plain(paper.paper_id)}]"
        return "\n".join([*textwrap.wrap(title, self.width), *columns(rows, self.width)])

    def _check_alone(self, argument: str) -> None:
        if argument:
            raise UsageError(f"expected the command alone, found {argument!r} after it")

    def _check_source(self) -> None:
        if not self._has_source(self._fields):
            raise UsageError("expected something to search with; begin with paper ID or text")

    def _refresh(self) -> None:
        """Move to the newest commit of the index; where that cannot be read, the one that is open goes on."""
        try:
            self.service.refresh()
        except QbeError as error:
            self.error(str(error))


def _count(papers: Iterable[str]) -> str:
    number = len(list(papers))
    return "1 paper" if number == 1 else f"{number} papers"
