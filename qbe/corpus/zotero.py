"""A Zotero library where it lies: items of its database (zotero.sqlite), also while Zotero runs.

Names of tables and columns are those of Zotero's schema (github.com/zotero/zotero, resource/schema). Zotero
keeps its database locked, so a consistent copy is read, and nothing is written beside it.
"""

import json
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from qbe.corpus import pdf
from qbe.corpus.fields import ABSTRACT_FROM, TITLE, once, placed, present
from qbe.corpus.json_formats import from_csl
from qbe.corpus.records import AS_IT_COMES, Entry
from qbe.corpus.streams import DATABASE, ZOTERO
from qbe.errors import CorpusError, RecordError

if TYPE_CHECKING:
    import sqlite3

COLLECTION = "/collection/"
TRIES = 40  # at a copy while Zotero moves what was written into the database
_NO_PAPERS = ("attachment", "note", "annotation")
_PREFERENCE = re.compile(r'user_pref\("extensions\.zotero\.(\w+)", ("(?:[^"\\]|\\.)*"|\w+)\);')
_PROFILES = (  # where Zotero keeps its preferences on Linux, macOS and Windows
    "~/.zotero/zotero",
    "~/Library/Application Support/Zotero/Profiles",
    "~/AppData/Roaming/Zotero/Zotero/Profiles",
)


def read(source: str) -> Iterator[Entry]:
    """Yield the papers of a library: my library first, then groups, each by the time of its addition.

    Trashed items, notes, annotations, attachments and feeds are left out. An item without abstract takes that
    of its PDF; where there is none, its title stands for it. Raises CorpusError for no library or collection.
    """
    import sqlite3

    place, _, collection = source.partition(COLLECTION)
    given = place.removeprefix(f"{ZOTERO}:")
    folder = find_folder() if given in (ZOTERO, "") else Path(given).expanduser()
    with tempfile.TemporaryDirectory(prefix="qbe-zotero-") as copies:
        copy = copy_database(folder / DATABASE, Path(copies))
        try:
            with closing(sqlite3.connect(copy)) as database:
                yield from _Library(database, folder).entries(collection)
        except sqlite3.DatabaseError as error:
            raise CorpusError(
                f"{folder / DATABASE}: expected Zotero's database, found another or a damaged one ({error}); "
                "open it in Zotero, or export the library as Better BibTeX, RIS or CSL JSON"
            ) from error


def preferences() -> dict[str, str]:
    """Return Zotero's preferences of the profile that was used last."""
    profiles = [path for each in _PROFILES for path in Path(each).expanduser().glob("*/prefs.js")]
    if not profiles:
        return {}
    text = max(profiles, key=lambda path: path.stat().st_mtime).read_text(encoding="utf-8", errors="replace")
    return {name: str(json.loads(value)) for name, value in _PREFERENCE.findall(text)}


def find_folder() -> Path:
    """Return the folder of the user's library: where Zotero's preferences say, or ``~/Zotero``."""
    chosen = preferences().get("dataDir", "")
    before_5 = (path for each in _PROFILES for path in sorted(Path(each).expanduser().glob("*/zotero")))
    places = [*([Path(chosen)] if chosen else []), Path("~/Zotero").expanduser(), *before_5]
    for place in places:
        if (place / DATABASE).is_file():
            return place
    raise CorpusError(
        f"expected a Zotero library in {' or '.join(map(str, places[:2]))}, found no {DATABASE}; name its "
        "folder (Zotero's settings, Advanced, Files and Folders): zotero:FOLDER"
    )


def copy_database(path: Path, folder: Path) -> Path:
    """Copy a database that another process may be writing to, with its log; raise CorpusError.

    The log (``-wal``, or ``-journal`` of older versions) may grow meanwhile: SQLite leaves out what lacks its
    end. When the database itself has changed, or the log has begun anew, the copy is made again.
    """
    for _ in range(TRIES):
        try:
            before = _state(path)
            for old in folder.iterdir():
                old.unlink()
            for suffix in ("", "-wal", "-journal"):
                if suffix == "" or Path(f"{path}{suffix}").exists():
                    shutil.copyfile(f"{path}{suffix}", folder / f"{DATABASE}{suffix}")
            if _state(path) == before:
                return folder / DATABASE
        except FileNotFoundError as error:
            if error.filename == str(path):
                found = f"no {DATABASE}; name its folder: zotero:FOLDER"
                raise CorpusError(f"{path.parent}: expected a Zotero library, found {found}") from error
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror}; close Zotero, and try again") from error
        time.sleep(0.05)
    raise CorpusError(f"{path}: expected a library at rest, found one that is being changed; try again later")


def _state(path: Path) -> tuple[Any, ...]:
    begins = []
    for suffix in ("-wal", "-journal"):
        with suppress(FileNotFoundError), Path(f"{path}{suffix}").open("rb") as stream:
            begins.append((suffix, stream.read(32)))
    found = path.stat()
    return found.st_mtime_ns, found.st_size, *begins


class _Library:
    """The items of a copied database, with all that belongs to each read at once."""

    def __init__(self, database: "sqlite3.Connection", folder: Path) -> None:
        self._database, self._folder = database, folder
        self._base = preferences().get("baseAttachmentPath", "")
        is_old = "sourceItemID" in self._columns("itemAttachments")  # before Zotero 5
        parent, kind = ("sourceItemID", "mimeType") if is_old else ("parentItemID", "contentType")
        data = "JOIN creatorData USING (creatorDataID)" if is_old else ""
        names = "fieldsCombined" if self._columns("fieldsCombined") else "fields"
        self._fields = self._lists(
            f"SELECT itemID, fieldName, value FROM itemData JOIN {names} USING (fieldID) "  # noqa: S608
            "JOIN itemDataValues USING (valueID)"
        )
        self._creators = self._lists(
            "SELECT itemID, creatorType, lastName, firstName, fieldMode FROM itemCreators "  # noqa: S608
            f"JOIN creators USING (creatorID) {data} "
            "JOIN creatorTypes USING (creatorTypeID) ORDER BY orderIndex"
        )
        self._tags = self._lists("SELECT itemID, name FROM itemTags JOIN tags USING (tagID) ORDER BY tagID")
        self._pdfs = self._lists(
            f"SELECT {parent}, key, path FROM itemAttachments JOIN items USING (itemID) "  # noqa: S608
            f"WHERE {kind} = 'application/pdf' AND path IS NOT NULL AND {parent} IS NOT NULL "
            "AND itemID NOT IN (SELECT itemID FROM deletedItems) ORDER BY itemID"
        )
        self._collections = self._read_collections()

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}

    def _lists(self, query: str) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for item, *values in self._database.execute(query):
            found[item].append(tuple(values))
        return found

    def _read_collections(self) -> dict[int, list[str]]:
        """Return the names of each item's collections, each after those that contain it."""
        trashed = "SELECT collectionID FROM deletedCollections"
        without = f"WHERE collectionID NOT IN ({trashed})" if self._columns("deletedCollections") else ""
        rows = self._database.execute(
            f"SELECT collectionID, collectionName, parentCollectionID FROM collections {without}"  # noqa: S608
        )
        known = {number: (name, parent) for number, name, parent in rows}
        found: dict[int, list[str]] = defaultdict(list)
        for item, number in self._database.execute("SELECT itemID, collectionID FROM collectionItems"):
            path: list[str] = []
            while number in known and len(path) <= len(known):
                name, number = known[number]
                path.insert(0, name)
            found[item] += path
        return found

    def entries(self, collection: str) -> Iterator[Entry]:
        """Yield the papers of the library, or of a collection and those below it."""
        if collection and not any(collection in names for names in self._collections.values()):
            names = once(name for names in self._collections.values() for name in names)
            raise CorpusError(
                f"expected a collection {collection!r} with items in {self._folder / DATABASE}, found "
                f"{', '.join(sorted(names)[:20]) or 'none'}; check its name"
            )
        kind = "type" if "type" in self._columns("libraries") else "libraryType"
        feeds = "AND itemID NOT IN (SELECT itemID FROM feedItems)" if self._columns("feedItems") else ""
        rows = self._database.execute(
            "SELECT itemID, key, typeName, groupID, groups.name FROM items "  # noqa: S608
            "JOIN itemTypes USING (itemTypeID) LEFT JOIN libraries USING (libraryID) "
            "LEFT JOIN groups USING (libraryID) WHERE itemID NOT IN (SELECT itemID FROM deletedItems) "
            f"AND ({kind} IS NULL OR {kind} != 'feed') {feeds} ORDER BY groupID IS NOT NULL, groupID, itemID"
        )
        seen = set[str]()
        for item, key, kind, group, group_name in rows:
            if kind in _NO_PAPERS or (collection and collection not in self._collections.get(item, ())):
                continue
            paper_id = key if key not in seen else f"{key}-{group}"  # keys are unique within a library
            seen.add(paper_id)
            where = f"Zotero item {key}"
            try:
                record = from_csl({"key": key, "itemType": kind, **self._source(item)})
            except RecordError as error:
                error.is_fault = False  # a library has letters and pages without titles
                yield Entry(where, placed(error, where))
                continue
            library, pdfs = f"groups/{group}" if group else "library", self._pdfs.get(item, [])
            metadata = dict(record["metadata"]) | {
                "collections": once(self._collections.get(item, ())),
                "group": group_name,
                "zotero": f"zotero://select/{library}/items/{key}",
                "pdf": f"zotero://open-pdf/{library}/items/{pdfs[0][0]}" if pdfs else None,
            }
            if not (abstract := record["abstract"]):
                abstract, stands_in = self._abstract_of(pdfs)
                metadata[ABSTRACT_FROM] = stands_in if abstract else TITLE
            texts = {"paper_id": paper_id, "abstract": abstract or record["title"]}
            yield Entry(where, {**record, **texts, "metadata": present(metadata)})

    def _source(self, item: int) -> dict[str, Any]:
        """Return the fields of an item as Zotero's Web API has them."""
        creators = [
            {"creatorType": role, **({"name": last} if mode else {"lastName": last, "firstName": first})}
            for role, last, first, mode in self._creators.get(item, ())
        ]
        tags = [{"tag": tag} for (tag,) in self._tags.get(item, ())]
        return {"creators": creators, "tags": tags, **dict(self._fields.get(item, ()))}

    def _abstract_of(self, pdfs: Iterable[tuple[Any, ...]]) -> tuple[str | None, str | None]:
        """Return the abstract of the first attached PDF that has one, and what stands for it there."""
        for key, path in pdfs:
            kind, _, name = path.partition(":")
            if kind == "storage":
                file = self._folder / "storage" / key / name
            elif kind == "attachments":  # below the base folder
                file = Path(self._base, name) if self._base else None
            else:
                file = Path(path) if not PureWindowsPath(path).drive or os.name == "nt" else None
            if file is None or not file.is_file():
                continue
            with file.open("rb") as stream:
                (entry,) = pdf.read(stream, str(file), AS_IT_COMES)
            if isinstance(entry.record, Mapping) and entry.record["abstract"]:
                return entry.record["abstract"], entry.record["metadata"].get(ABSTRACT_FROM)
        return None, None
