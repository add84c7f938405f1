"""Harvesting into a corpus file, which always has the newest version of each paper once.

Beside the file ``papers.jsonl`` are ``papers.jsonl.harvest.json``, the state, and, while a harvest is not
finished, ``papers.jsonl.harvest.part``, the records that came so far. A page counts once its records are on
the disk and the state, which is replaced in one step, says so: an interrupted harvest goes on with the page
that did not count, and what is behind the last page that did is cut off. Only when all pages are there the
file itself is replaced, in one step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

from qbe.corpus.records import dump_record
from qbe.errors import CorpusError, OutputError, RecordError, UsageError, output_error
from qbe.feeds.harvest import FORMATS
from qbe.feeds.harvest.repository import Repository, TokenError
from qbe.util.files import StrPath, atomic_file, lock, sync, write_text

STATE, PART = ".harvest.json", ".harvest.part"
VERSION = 1
MOST_RESTARTS = 3
"""How often a list is begun again whose resumption token is refused."""

_ID = re.compile(rb'\{"paper_id": ("(?:[^"\\]|\\.)*")')
_DELETED = "deleted"


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Asked:
    """What is harvested: the repository's ``address``, its ``sets`` (none: all records), the metadata format
    ``form``, one of FORMATS, and ``first_date`` (YYYY-MM-DD), since which records were changed, '' for all.

    >>> Asked("https://oaipmh.arxiv.org/oai", ("cs",), first_date="2026-11")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `first_date` such as 2026-11-01, found '2026-11'
    """

    address: str
    sets: tuple[str, ...] = ()
    form: str = FORMATS[0]
    first_date: str = ""

    def __post_init__(self) -> None:
        if self.first_date and not _is_date(self.first_date):
            raise UsageError(f"expected `first_date` such as 2026-11-01, found {self.first_date!r}")
        if self.form not in FORMATS:
            raise UsageError(f"expected `form` of {', '.join(FORMATS)}, found {self.form!r}")


@dataclass(slots=True)
class Unfinished:
    """A harvest that is not finished: records since ``begin``; it goes on with list ``number`` of the sets
    at ``token`` ('' for its beginning), behind ``size`` bytes of the part file. ``date`` is that of the
    server's first answer, ``restarts`` counts those of this list, ``left_out`` records by reason.
    """

    begin: str
    number: int = 0
    token: str = ""
    size: int = 0
    date: str = ""
    restarts: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """What is known of a harvested file: what was ``asked``; ``harvested_to``, the date of the server when
    the last harvest began; ids that it said are ``deleted``; the ``index`` that was updated last, and the
    papers that changed since, ``pending``, None for all.
    """

    asked: Asked
    harvested_to: str = ""
    deleted: set[str] = field(default_factory=set)
    index: str = ""
    pending: set[str] | None = None
    unfinished: Unfinished | None = None

    def write(self, path: Path) -> None:
        """Replace the state on the disk in one step."""
        record = {"version": VERSION, **dataclasses.asdict(self)}
        record["deleted"] = sorted(self.deleted)
        record["pending"] = None if self.pending is None else sorted(self.pending)
        write_text(path, json.dumps(record) + "\n")


@dataclass(frozen=True, slots=True)
class Harvested:
    """What a harvest did, in papers: ``added``, ``replaced`` by another version, ``deleted``, and
    ``unchanged`` although the server sent them; how many ``papers`` the file has, of the server's records
    changed before or at ``date``; ``left_out`` counts records that cannot be used, by reason.
    """

    added: int
    replaced: int
    deleted: int
    unchanged: int
    papers: int
    date: str
    left_out: Mapping[str, int]


Progress = Callable[[int], object]
"""Called with the number of records that just came."""


def harvest(
    output: StrPath, asked: Asked, repository: Repository, progress: Progress = lambda _: None
) -> Harvested:
    """Harvest into ``output``: all records since ``asked.first_date`` the first time, from then on those that
    changed since the last time, and what an interrupted harvest lacks.

    A later harvest with an earlier ``first_date`` begins there. Raises CorpusError where the server does not
    answer or refuses, UsageError where ``output`` was harvested otherwise, OutputError where it holds
    something else, cannot be written, or another process harvests into it.
    """
    output = Path(output)
    with harvest_lock(output):
        state = _begun(output, asked)
        try:
            _fetch(output, state, repository, progress)
        except BaseException:
            if state.unfinished is not None and not state.unfinished.size:  # nothing came
                beside(output, PART).unlink(missing_ok=True)
            raise
        return _finish(output, state)


@contextlib.contextmanager
def harvest_lock(output: Path) -> Iterator[None]:
    """Keep other processes from a harvested file and its state; raises OutputError where one uses them."""
    with lock(output.with_name(f".{output.name}.harvest.lock")) as is_mine:
        if not is_mine:
            raise OutputError(
                f"expected to use {output} alone, found another process at work; wait for its end"
            )
        yield


def read_state(output: Path) -> State | None:
    """The state of a harvested file, None where there is none; raises CorpusError for one that is damaged."""
    path = beside(output, STATE)
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        asked, unfinished = dict(record["asked"]), record["unfinished"]
        return State(
            asked=Asked(**{**asked, "sets": tuple(asked["sets"])}),
            harvested_to=record["harvested_to"],
            deleted=set(record["deleted"]),
            index=record["index"],
            pending=None if record["pending"] is None else set(record["pending"]),
            unfinished=None if unfinished is None else Unfinished(**unfinished),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path}: expected the state of a harvest, found none ({type(error).__name__}); remove it "
            f"and {output.name} to harvest anew"
        ) from None


def beside(output: Path, ending: str) -> Path:
    """The file of that ending that goes with a harvested file."""
    return output.with_name(output.name + ending)


def _begun(output: Path, asked: Asked) -> State:
    """The state with a harvest that is unfinished; the part file ends where the state says."""
    state, part = read_state(output), beside(output, PART)
    if state is None:
        if output.exists():
            raise OutputError(
                f"expected {output} to be new, or a file that was harvested, found another one; choose "
                "another `output`"
            )
        state = State(asked)
    elif state.harvested_to and not output.exists():
        raise CorpusError(
            f"expected {output}, which was harvested to {state.harvested_to}, found none; put it back, or "
            f"remove {beside(output, STATE).name} to harvest anew"
        )
    before = dataclasses.replace(state.asked, first_date=asked.first_date)
    if before != asked:
        changed = next(
            name for name in ("address", "sets", "form") if getattr(before, name) != getattr(asked, name)
        )
        raise UsageError(
            f"expected the `{changed}` of the harvest in {output}, {_shown(getattr(before, changed))}, found "
            f"{_shown(getattr(asked, changed))}; choose another `output`"
        )
    is_earlier = bool(asked.first_date) and asked.first_date < state.asked.first_date
    came = part.stat().st_size if part.is_file() else -1
    if state.unfinished is None or came < state.unfinished.size or is_earlier:
        if is_earlier:
            state.asked = asked
        begin = asked.first_date if is_earlier or not state.harvested_to else state.harvested_to
        state.unfinished = Unfinished(begin)
    state.unfinished.restarts = 0
    try:
        with part.open("ab") as stream:
            stream.truncate(state.unfinished.size)
    except OSError as error:
        raise output_error(part, error) from error
    return state


def _shown(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else " ".join(value) or "none"


def _fetch(output: Path, state: State, repository: Repository, progress: Progress) -> None:
    """Append the pages that are missing to the part file, each with its state."""
    part, unfinished = beside(output, PART), state.unfinished
    assert unfinished is not None
    sets: Sequence[str] = state.asked.sets or ("",)
    left_out = Counter(unfinished.left_out)
    try:
        with part.open("ab") as stream:
            while unfinished.number < len(sets):
                arguments = {"resumptionToken": unfinished.token}
                if not unfinished.token:
                    first = {"from": unfinished.begin, "set": sets[unfinished.number]}
                    arguments = {name: value for name, value in first.items() if value}
                    arguments["metadataPrefix"] = state.asked.form
                try:
                    page = repository.records(arguments)
                except TokenError as error:
                    _restart(repository, unfinished, error)
                else:
                    _append(stream, page.records, left_out)
                    unfinished.left_out, unfinished.size = dict(left_out), stream.tell()
                    unfinished.date = unfinished.date or page.date[:10]
                    if page.token and page.token == unfinished.token:
                        raise CorpusError(
                            f"{repository.address}: expected another resumption token on each page, found "
                            f"the same one again, {page.token:.60}; try again later"
                        )
                    unfinished.token = page.token
                    if not page.token:
                        unfinished.number, unfinished.restarts = unfinished.number + 1, 0
                    progress(len(page.records))
                state.write(beside(output, STATE))
    except OSError as error:
        raise output_error(part, error) from error


def _restart(repository: Repository, unfinished: Unfinished, error: TokenError) -> None:
    """Begin a list again; raises CorpusError where that was done too often, or its beginning is refused."""
    if not unfinished.token or unfinished.restarts == MOST_RESTARTS:
        raise CorpusError(
            f"{repository.address}: expected the next page, found that its resumption token is refused "
            f"({error!s:.100}) after {unfinished.restarts} new beginnings; what was harvested is kept: run "
            "the same command later to go on"
        ) from None
    unfinished.token, unfinished.restarts = "", unfinished.restarts + 1


def _append(stream: BinaryIO, records: Sequence[Any], left_out: Counter[str]) -> None:
    """Write records as lines, flushed to the disk."""
    for paper_id, record in records:
        if isinstance(record, RecordError):
            left_out[record.reason] += 1
        else:
            stream.write(dump_record(dict(record or {"paper_id": paper_id, _DELETED: True})))
    stream.flush()
    os.fsync(stream.fileno())


def _finish(output: Path, state: State) -> Harvested:
    """Put what came into the file, and say so in the state.

    The state gets the changed papers before the file is replaced, and counts as finished after that: when
    the process dies in between, this is done again, and changes nothing more.
    """
    part, unfinished = beside(output, PART), state.unfinished
    assert unfinished is not None
    try:
        with part.open("rb") as came:
            newest, gone = _newest(came)
            counts, papers, kept = _compared(output, came, newest, gone)
            added = counts["added"] + counts["replaced"]
            state.deleted = (state.deleted | gone) - newest.keys()
            if state.pending is not None:
                state.pending |= newest.keys()
            state.write(beside(output, STATE))
            if added or counts["deleted"] or not output.exists():
                with atomic_file(output) as stream:
                    for line in kept():
                        stream.write(line)
                    for place in sorted(newest.values()):
                        came.seek(place)
                        stream.write(came.readline())
                sync(output.parent)
        state.harvested_to, state.unfinished = unfinished.date or state.harvested_to, None
        state.write(beside(output, STATE))
        part.unlink()
    except OSError as error:
        raise output_error(output, error) from error
    return Harvested(
        **{name: counts[name] for name in ("added", "replaced", "deleted", "unchanged")},
        papers=papers + added,
        date=state.harvested_to,
        left_out=unfinished.left_out,
    )


def _newest(came: BinaryIO) -> tuple[dict[str, int], set[str]]:
    """Where the last record of each paper begins, and the ids of papers whose last record is a deletion."""
    newest: dict[str, int] = {}
    gone: set[str] = set()
    place = 0
    for line in came:
        paper_id = _id_of(line, "the part file")
        if line.endswith(b', "deleted": true}\n'):
            newest.pop(paper_id, None)
            gone.add(paper_id)
        else:
            newest[paper_id] = place
            gone.discard(paper_id)
        place += len(line)
    return newest, gone


def _compared(
    output: Path, came: BinaryIO, newest: dict[str, int], gone: set[str]
) -> tuple[Counter[str], int, Callable[[], Iterator[bytes]]]:
    """Counts of what changes; how many papers of the file stay, and their lines as a stream. Those that came
    as they are in the file are taken out of ``newest``.
    """
    counts: Counter[str] = Counter()
    dropped: set[int] = set()
    number = -1
    for number, line in enumerate(_lines(output)):
        paper_id = _id_of(line, f"{output}, line {number + 1}")
        if paper_id in gone:
            counts["deleted"] += 1
            dropped.add(number)
        elif paper_id in newest:
            came.seek(newest[paper_id])
            if came.readline() == line:
                counts["unchanged"] += 1
                del newest[paper_id]
            else:
                counts["replaced"] += 1
                dropped.add(number)
    counts["added"] = len(newest) - counts["replaced"]
    return (
        counts,
        number + 1 - len(dropped),
        lambda: (line for number, line in enumerate(_lines(output)) if number not in dropped),
    )


def _lines(output: Path) -> Iterator[bytes]:
    """The lines of the file, none where it does not exist."""
    if output.exists():
        with output.open("rb") as stream:
            yield from stream


def _id_of(line: bytes, where: str) -> str:
    match = _ID.match(line)
    if match is None:
        raise CorpusError(
            f"{where}: expected a paper that was harvested, found another line; remove it and harvest again"
        )
    paper_id: str = json.loads(match[1])
    return paper_id


def changed_records(output: Path, state: State) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records of the file that the index lacks, perhaps, each with its place."""
    for number, line in enumerate(_lines(output), start=1):
        where = f"{output}, line {number}"
        if state.pending is None or _id_of(line, where) in state.pending:
            yield where, json.loads(line)
