"""The commands of a shell, and what they change."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from qbe.errors import OutputError, QbeError, UsageError, did_you_mean, output_error
from qbe.plain import plain
from qbe.service.records import Record
from qbe.service.requests import Export
from qbe.service.service import RERANKED, SearchService
from qbe.shapes import SHAPES
from qbe.shell.commands import COMMANDS, FORMATS, SEEDS
from qbe.shell.parsing import ALL, parse_numbers, parse_positions, parse_years
from qbe.shell.question import Counted, Question
from qbe.shell.tables import columns, heading_lines, hit_lines, paper_lines, why_lines

PAIRS = 5
"""Pairs of sentences that explain a hit."""

_NOTHING = " "
"""An argument that was left out, so that it is refused like another wrong one."""


class Terminal(Protocol):
    """What commands read further lines from, and write to."""

    @property
    def width(self) -> int:
        """Characters in a line."""

    def line(self) -> str | None:
        """The next line of a text, None at the end."""

    def write(self, text: str) -> None:
        """Write lines."""

    def blocks(self, blocks: Iterable[list[str]]) -> None:
        """Write blocks of lines, an empty line between them."""

    def hint(self, text: str) -> None:
        """Write a line for who sits at a terminal."""

    def error(self, message: str) -> None:
        """Say in a line what is wrong."""


class Session:
    """What is searched with and what was found at the moment, and the commands that change it."""

    def __init__(self, service: SearchService, terminal: Terminal) -> None:
        self._service, self._terminal = service, terminal
        self._question = Question()
        self._reranks = service.reranks_at_once
        self._hits: dict[int, Record] = {}
        self._query: Record = {}
        self._wanted: tuple[str, ...] = ()
        self._next: Callable[[], None] | None = None
        self._handlers: dict[str, Callable[[str], object]] = {
            name: getattr(self, f"_{name}") for name in COMMANDS
        }

    def handler(self, name: str) -> Callable[[str], object]:
        """What does a command, given its arguments as a text; it returns True if the command is the last.

        Raises UsageError for what is no command. Handlers raise QbeError, and ValidationError for values that
        a request cannot have; nothing is changed then.
        """
        if name not in self._handlers:
            hint = did_you_mean(name, COMMANDS, "help lists them")
            raise UsageError(f"expected a command, found {name!r:.60}; {hint}")
        return self._handlers[name]

    # The commands, by their names in COMMANDS.

    def _paper(self, argument: str) -> None:
        ids = argument.split()
        if not ids:
            raise UsageError("expected the id of a paper, found none; Tab completes it")
        self._ask(self._question.of_papers(tuple(dict.fromkeys(ids))))

    def _text(self, title: str) -> None:
        self._terminal.hint("Paste an abstract; an empty line, or a dot, ends it.")
        lines: list[str] = []
        while (line := self._terminal.line()) is not None and line.strip() != ".":
            if line.strip():
                lines.append(line)
            elif lines:
                break
        if not lines:
            raise UsageError("expected an abstract, found none")
        self._ask(self._question.of_text("\n".join(lines), title))

    def _facet(self, argument: str) -> None:
        self._count(Counted() if argument == ALL else Counted(facet=argument or _NOTHING))

    def _like(self, argument: str) -> None:
        words = argument.replace(",", " ").split()
        if not words:
            raise UsageError("expected facets such as method or method:0.5, found none")
        place = words.index("unlike") if "unlike" in words else len(words)
        self._count(Counted(like=tuple(words[:place]), unlike=tuple(words[place + 1 :])))

    def _unlike(self, argument: str) -> None:
        words = tuple(argument.replace(",", " ").split())
        liked = self._question.counted.like
        if not words or not liked:
            raise UsageError("expected facets behind unlike, and like FACET before it")
        self._count(Counted(like=liked, unlike=words))

    def _explore(self, argument: str) -> None:
        self._count(Counted(explore=argument or _NOTHING))

    def _sentences(self, argument: str) -> None:
        self._count(Counted(sentences=tuple(parse_positions(argument))))

    def _year(self, argument: str) -> None:
        self._ask(replace(self._question, years=parse_years(argument)))

    def _category(self, argument: str) -> None:
        names = () if argument == ALL else tuple(argument.replace(",", " ").split())
        if not names and argument != ALL:
            raise UsageError("expected categories such as cs.CL, or all, found none")
        self._ask(replace(self._question, categories=names))

    def _k(self, argument: str) -> None:
        if not (argument.isascii() and argument.isdigit()):
            raise UsageError(f"expected a number of hits, found {argument!r}")
        self._ask(replace(self._question, k=int(argument)))

    def _more(self, argument: str) -> None:
        self._alone(argument)
        if self._next is None:
            raise UsageError(
                "expected further hits, found none" if self._hits else "expected a search before"
            )
        self._next()

    def _why(self, argument: str) -> None:
        facets = {
            sentence["text"]: sentence["facet"]
            for paper in self._query.get("papers", ())
            for sentence in paper["sentences"]
            if sentence["facet"]
        }
        self._terminal.blocks(
            why_lines(hit, facets, PAIRS, self._terminal.width) for hit in self._numbered(argument)
        )

    def _show(self, argument: str) -> None:
        if not argument:
            if not self._query.get("papers"):
                raise UsageError("expected something to show; begin with paper ID or text")
            self._terminal.blocks(paper_lines(paper, self._terminal.width) for paper in self._query["papers"])
            return
        is_id = argument in self._service.index and not (argument.isdigit() and int(argument) in self._hits)
        ids = [argument] if is_id else [hit["paper_id"] for hit in self._numbered(argument)]
        self._terminal.blocks(
            paper_lines(self._service.paper(paper_id), self._terminal.width) for paper_id in ids
        )

    def _seed(self, argument: str) -> None:
        ids = tuple(hit["paper_id"] for hit in self._numbered(argument))
        question = self._question
        seeds = tuple(dict.fromkeys((*question.paper_ids, *ids)))
        others = tuple(each for each in question.not_paper_ids if each not in ids)
        if question.text is not None:
            self._terminal.write("The search goes on from these papers, without the text.")
        self._ask(replace(question, paper_ids=seeds, text=None, title="", not_paper_ids=others))

    def _not(self, argument: str) -> None:
        ids = [hit["paper_id"] for hit in self._numbered(argument)]
        question = self._question
        self._ask(
            replace(
                question,
                paper_ids=tuple(each for each in question.paper_ids if each not in ids),
                not_paper_ids=tuple(dict.fromkeys((*question.not_paper_ids, *ids))),
            )
        )

    def _seen(self, argument: str) -> None:
        ids = [hit["paper_id"] for hit in self._numbered(argument)]
        seen = tuple(dict.fromkeys((*self._question.seen, *ids)))
        self._question = replace(self._question, seen=seen)
        self._terminal.write(f"Left out from the next search on: {_in_words(seen)}.")

    def _seeds(self, argument: str) -> None:
        self._alone(argument)
        question = self._question
        rows = [
            ("counts", str(question.counted)),
            ("years", str(question.years)),
            ("categories", " ".join(question.categories) or ALL),
            ("seen", _in_words(question.seen)),
            ("k", str(question.k)),
            ("rerank", "on" if self._reranks else "off"),
        ]
        if question.text is not None:
            rows.insert(0, ("text", question.title or question.text))
        named = [
            *(("paper", each) for each in question.paper_ids),
            *(("not", each) for each in question.not_paper_ids),
        ]
        rows[:0] = [
            (name, f"{paper_id}  {self._service.index.paper(paper_id).title}") for name, paper_id in named
        ]
        self._terminal.blocks([columns(((name, plain(value)) for name, value in rows), self._terminal.width)])

    def _cite(self, argument: str) -> None:
        self._alone(argument)
        self._refresh()
        question = self._question
        self._first(lambda start: self._service.recommend(question.recommendation(start)), ())

    def _export(self, argument: str) -> None:
        try:
            form, name, *chosen = shlex.split(argument)
        except ValueError:
            raise UsageError(
                f"expected a format ({', '.join(FORMATS)}) and a file, found {argument!r}"
            ) from None
        if chosen == [SEEDS]:
            ids: Sequence[str] = self._question.paper_ids
        else:
            hits = self._numbered(" ".join(chosen)) if chosen else self._hits.values()
            ids = [hit["paper_id"] for hit in hits]
        if not ids:
            raise UsageError("expected papers to export, found none")
        text = self._service.export(Export(paper_ids=list(ids), format=form))  # type: ignore[arg-type]
        _write_new(Path(name).expanduser(), text)
        self._terminal.write(f"{_in_words(ids)} written to {name}.")

    def _rerank(self, argument: str) -> None:
        if argument not in ("on", "off"):
            raise UsageError(f"expected on or off, found {argument!r}")
        is_new = self._reranks != (argument == "on")
        self._reranks = argument == "on"
        if is_new and self._question.is_there:
            self._ask(self._question)

    def _reset(self, argument: str) -> None:
        self._alone(argument)
        self._question, self._hits, self._query, self._next = Question(), {}, {}, None

    def _help(self, argument: str) -> None:
        if argument:
            self.handler(argument)
        names = [argument] if argument else COMMANDS
        rows = ((f"{name} {COMMANDS[name].arguments}".strip(), COMMANDS[name].help) for name in names)
        self._terminal.blocks([columns(rows, self._terminal.width)])

    def _quit(self, argument: str) -> bool:
        self._alone(argument)
        return True

    # What commands have in common.

    def _count(self, counted: Counted) -> None:
        self._ask(replace(self._question, counted=counted))

    def _ask(self, question: Question) -> None:
        """Search, and show the hits of the first stage at once; what fails changes nothing.

        Where nothing is there to search with, what is asked is only checked and kept.
        """
        if not question.is_there:
            if self._question.is_there:
                raise UsageError("expected a paper that the search starts from to be left, found none")
            replace(question, text="checked").request(0, rerank=False)
            self._question = question
            self._terminal.write(
                f"Searches count {question.counted}, years {question.years}; begin with paper ID or text."
            )
            return
        self._refresh()
        wanted = _wanted(question.counted)
        self._first(lambda start: self._service.search(question.request(start, rerank=False)), wanted)
        self._question = question
        if self._reranks:
            self._terminal.hint("\nreranking ...")
            self._first(
                lambda start: self._service.search(question.request(start, rerank=True)), wanted, again=True
            )

    def _first(self, page: Callable[[int], Record], wanted: tuple[str, ...], *, again: bool = False) -> None:
        """Show the first page of a ranking; ``again`` only if it is reranked."""
        record = page(0)
        if again and record["stage"] != RERANKED:
            return
        self._hits, self._wanted = {}, wanted
        if "papers" in record["query"]:  # which recommendations have none of
            self._query = record["query"]
        stage = ", reranked" if again else ""
        self._page(page, record, heading_lines(f"{record['query']['heading']}{stage}", self._terminal.width))

    def _page(self, page: Callable[[int], Record], record: Record, before: list[str]) -> None:
        self._hits |= {hit["rank"]: hit for hit in record["hits"]}
        start = record["next_start"]
        self._next = None if start is None else lambda: self._page(page, page(start), [])
        notes = [*record["notes"], *(["more shows the next hits"] if record["has_more"] else [])]
        if not record["hits"]:
            notes.insert(0, "No paper was found")
        tables = [hit_lines(hit, self._wanted, self._terminal.width) for hit in record["hits"]]
        last = [f"{record['seconds']:.2f} s; {'; '.join(notes)}" if notes else f"{record['seconds']:.2f} s"]
        self._terminal.blocks([*([before] if before else []), *tables, last])

    def _numbered(self, argument: str) -> list[Record]:
        """The hits of these numbers."""
        numbers = parse_numbers(argument)
        if not self._hits:
            raise UsageError("expected hits to choose from; search first, with paper ID or text")
        for number in numbers:
            if number not in self._hits:
                raise UsageError(f"expected numbers of hits from 1 to {max(self._hits)}, found {number}")
        return [self._hits[number] for number in numbers]

    def _alone(self, argument: str) -> None:
        if argument:
            raise UsageError(f"expected the command alone, found {argument!r} behind it")

    def _refresh(self) -> None:
        """Move to the newest commit of the index; where that cannot be read, the one that is open goes on."""
        try:
            self._service.refresh()
        except QbeError as error:
            self._terminal.error(str(error))


def _wanted(counted: Counted) -> tuple[str, ...]:
    """The facets that hits should have in common with the query."""
    if counted.explore is not None:
        return tuple(str(facet) for facet, weight in SHAPES[counted.explore].items() if weight > 0)
    return (counted.facet,) if counted.facet else tuple(each.partition(":")[0] for each in counted.like)


def _in_words(papers: Sequence[str]) -> str:
    return "1 paper" if len(papers) == 1 else f"{len(papers)} papers"


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet; raises OutputError."""
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise OutputError(f"{path}: expected no such file, found one; choose another name") from None
    except (OSError, ValueError) as error:
        raise output_error(path, error if isinstance(error, OSError) else OSError(str(error))) from None
    try:
        with stream:
            stream.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise output_error(path, error) from None
