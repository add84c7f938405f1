"""Harvest a repository into a journal, which an update of an index empties.

The journal is JSON lines: a header, the records of each page as they come, and behind each page a line that
says where the harvest goes on. What follows the last of these lines, of an interrupted page, is cut off.
"""

import dataclasses
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from qbe.corpus.records import RejectedRecords, Splitter, dump_record, parse_paper
from qbe.errors import CorpusError, RecordError, UsageError, input_error, output_error
from qbe.feeds import check_day
from qbe.feeds.oai import KEPT, Repository, TokenError
from qbe.index.build import build
from qbe.index.source import BuildSettings, Execution, Source
from qbe.index.update import Written, append_papers
from qbe.types import Paper
from qbe.util.files import StrPath, change_lock, write_text

log = logging.getLogger("qbe.feeds")

VERSION = 2
MAX_EMPTY = 20  # pages without records in a row
ALMOST_ALL = 0.98  # of the stated size of a list, which may be an estimate
MAX_RESTARTS = 3  # of a list whose resumption token is refused

Progress = Callable[[int], object]
FORMATS = ("arXivRaw", "arXiv")  # metadata formats that are read
_DAMAGED = ValueError, KeyError, TypeError, RecursionError
_PAGE, _DELETED = b'{"page"', b', "deleted": true}\n'


@dataclass(frozen=True, slots=True)
class HarvestSpec:
    """What is harvested: ``sets`` (none: all) in the format ``form``, changed since ``first_date``."""

    address: str
    sets: tuple[str, ...] = ()
    form: str = FORMATS[0]
    first_date: str = ""

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise UsageError(f"expected `form` of {', '.join(FORMATS)}, found {self.form!r}")
        check_day("first_date", self.first_date)


@dataclass(slots=True)
class Place:
    """Where a harvest since ``begin`` goes on: in set ``number`` at ``token`` ('': its beginning)."""

    begin: str
    since: str  # the first date of all harvests
    number: int = 0
    token: str = ""
    date: str = ""  # of the server's first answer
    records: int = 0
    deleted: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    listed: int = 0  # records of this list
    short: int = 0  # of how many it ended the last time, too few


@dataclass(slots=True)
class Journal:
    """A journal's spec and ``index``, and the ``place`` of its last page, whose line ends at ``size``."""

    path: Path
    spec: HarvestSpec
    index: str = ""
    place: Place | None = None
    size: int = 0

    @classmethod
    def read(cls, path: Path) -> "Journal":
        try:
            with path.open("rb") as stream:
                header = json.loads(stream.readline())
                if header["qbe_harvest"] != VERSION:
                    raise ValueError
                spec = HarvestSpec(**{**header["spec"], "sets": tuple(map(str, header["spec"]["sets"]))})
                journal = cls(path, spec, header["index"], size=stream.tell())
                if header["harvested_to"]:  # what was harvested is in the index
                    journal.place = Place("", spec.first_date, sys.maxsize, date=header["harvested_to"])
                end = journal.size
                for line in stream:
                    end += len(line)
                    if line.startswith(_PAGE) and line.endswith(b"\n"):
                        journal.place, journal.size = Place(**json.loads(line)["page"]), end
            return journal
        except OSError as error:
            raise input_error(path, error) from error
        except _DAMAGED:
            raise _damaged(path) from None

    @property
    def is_complete(self) -> bool:
        return self.place is not None and self.place.number >= max(1, len(self.spec.sets))

    def begun(self, spec: HarvestSpec) -> Place:
        """Where a harvest goes on, or begins; UsageError for another repository, set or format."""
        for name in ("address", "sets", "form"):
            was, now = getattr(self.spec, name), getattr(spec, name)
            if was != now:
                was, now = (" ".join(each) or "none" if name == "sets" else each for each in (was, now))
                expected = f"expected the `{name}` of the harvest in {self.path}, {was}"
                raise UsageError(f"{expected}, found {now}; choose another `output`")
        place, first, today = self.place, spec.first_date, _day(0)
        if place is None or "" < first < place.since or not _is_past(place.date or place.since or today):
            return Place(first, first)
        return Place(place.date, place.since) if self.is_complete else place

    def newest(self) -> tuple[dict[str, int], set[str]]:
        """Return offsets of the newest record of each paper, and ids of deleted ones; raises CorpusError."""
        newest, deleted = dict[str, int](), set[str]()
        try:
            with self.path.open("rb") as stream:
                place = len(stream.readline())
                for line in stream:
                    if place < self.size and not line.startswith(_PAGE):
                        paper_id = json.loads(line)["paper_id"]
                        deleted.discard(paper_id)
                        newest[paper_id] = place
                        if line.endswith(_DELETED):
                            deleted.add(paper_id)
                    place += len(line)
        except _DAMAGED:
            raise _damaged(self.path) from None
        return {each: place for each, place in newest.items() if each not in deleted}, deleted


def _damaged(path: Path) -> CorpusError:
    remedy = "choose another `output`, or remove it to harvest anew"
    return CorpusError(f"{path} is not the journal of a harvest, or is damaged; {remedy}")


def write_header(path: Path, spec: HarvestSpec, harvested_to: str = "", index: str = "") -> None:
    """Begin a journal, of a harvest that is in an index up to the server's date ``harvested_to``."""
    header = {"qbe_harvest": VERSION, "spec": dataclasses.asdict(spec), "harvested_to": harvested_to}
    write_text(path, json.dumps({**header, "index": index}) + "\n")


def harvest(
    path: StrPath, spec: HarvestSpec, repository: Repository, progress: Progress = lambda _: None
) -> Place:
    """Append to a journal all records, those that changed since the last time, or what it still lacks."""
    path = Path(path)
    with change_lock(path):
        if is_new := not path.exists():
            write_header(path, spec)
        try:
            journal = Journal.read(path)
            place = journal.begun(spec)
            with path.open("r+b") as stream:
                stream.seek(stream.truncate(journal.size))
                _fetch(stream, spec, place, repository, progress)
        except OSError as error:
            raise output_error(path, error) from error
        finally:
            if is_new and Journal.read(path).place is None:  # nothing came
                path.unlink()
        return place


def _fetch(stream: Any, spec: HarvestSpec, place: Place, repository: Repository, progress: Progress) -> None:
    sets, restarts, tokens, empty, today = spec.sets or ("",), 0, {place.token}, 0, _day(0)
    while place.number < len(sets):
        first = {"from": place.begin, "set": sets[place.number], "metadataPrefix": spec.form}
        asked = {"resumptionToken": place.token} if place.token else first
        try:
            page = repository.records({name: value for name, value in asked.items() if value})
        except TokenError as error:
            if not place.token or restarts == MAX_RESTARTS:
                found = f"its resumption token refused ({error!s:.100}) after {restarts} new beginnings"
                expected = f"{repository.address}: expected the next page, found {found}"
                raise CorpusError(f"{expected}; {KEPT}") from None
            place.token, place.listed, restarts = "", 0, restarts + 1
            tokens.clear()
            continue
        empty = 0 if page.records else empty + 1
        if page.token and (page.token in tokens or empty > MAX_EMPTY):
            found = f"{empty} pages without records" if empty > MAX_EMPTY else f"{page.token:.60} again"
            raise CorpusError(f"{repository.address}: expected a new resumption token, found {found}; {KEPT}")
        tokens.add(page.token)
        if not (place.date or _is_past(page.date[:10])):
            told = "%s: expected the date of the answer, found %.30r: taken as of %s"
            log.warning(told, repository.address, page.date, today)
        for paper_id, record in page.records:
            if isinstance(record, RecordError):
                place.left_out[record.reason] = place.left_out.get(record.reason, 0) + 1
                continue
            place.records += 1
            place.deleted += record is None
            stream.write(dump_record(dict(record or {"paper_id": paper_id, "deleted": True})))
        place.date = place.date or (page.date[:10] if _is_past(page.date[:10]) else today)
        place.token, place.listed = page.token, place.listed + len(page.records)
        if not page.token and place.listed < page.size:
            log.warning("%s: %d of %d records came", repository.address, place.listed, page.size)
            if place.listed != place.short and place.listed < ALMOST_ALL * page.size:
                place.short, place.listed = place.listed, 0
                _note(stream, place)
                found = f"{place.short:,} of the {page.size:,} that its list has"
                raise CorpusError(f"{repository.address}: expected all records, found {found}; {KEPT}")
        if not page.token:
            place.number, restarts, place.listed, place.short = place.number + 1, 0, 0, 0
            tokens.clear()
        _note(stream, place)
        progress(len(page.records))


def _note(stream: Any, place: Place) -> None:
    stream.write(json.dumps({"page": dataclasses.asdict(place)}).encode() + b"\n")
    stream.flush()
    os.fsync(stream.fileno())


def _day(ahead: int) -> str:
    return (datetime.now(UTC) + timedelta(days=ahead)).date().isoformat()


def _is_past(day: str) -> bool:
    """Return whether a server's date is one, and not after tomorrow."""
    try:
        check_day("date", day)
    except UsageError:
        return False
    return "" < day <= _day(1)


def update_index(path: StrPath, folder: StrPath, execution: Execution | None = None) -> Written:
    """Update an index, or build it, by a complete journal in one step, and empty the journal."""
    path, folder = Path(path), os.path.realpath(folder)
    with change_lock(path):
        journal = Journal.read(path)
        if journal.index not in ("", folder):
            expected = f"expected the index that {path} updates, {journal.index}, found {folder}"
            raise UsageError(f"{expected}; harvest into another `output` for another index")
        if not journal.is_complete:
            raise CorpusError(f"{path}: the harvest is not complete; run the same command to go on")
        newest, deleted = journal.newest()

        def papers(split: Splitter, left_out: RejectedRecords) -> Iterator[Paper]:
            left_out.deleted = frozenset(deleted)
            with path.open("rb") as stream:
                for begin in sorted(newest.values()):
                    stream.seek(begin)
                    record: Mapping[str, Any] = json.loads(stream.readline())
                    yield parse_paper(record, f"{path}, {record['paper_id']}", split)

        source = Source(papers, (str(path),), [[str(path), uuid.uuid4().hex]])
        if Path(folder).exists():
            written = append_papers(folder, source, update=True, execution=execution)
        else:
            build(Path(folder), source, BuildSettings(), execution=execution)
            written = Written(len(newest), 0, 0, len(newest), generation=1)
        assert journal.place is not None
        spec = dataclasses.replace(journal.spec, first_date=journal.place.since)
        write_header(path, spec, journal.place.date, folder)
    return written
