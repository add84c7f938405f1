"""Zotero's databases: the tables that are read, of today's schema and of one before Zotero 5."""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TYPES = ("journalArticle", "conferencePaper", "book", "note", "attachment", "annotation", "letter")
FIELDS = ("title", "abstractNote", "date", "DOI", "publicationTitle", "proceedingsTitle", "extra", "subject")

_SHARED = """
CREATE TABLE itemTypes (itemTypeID INTEGER PRIMARY KEY, typeName TEXT);
CREATE TABLE fields (fieldID INTEGER PRIMARY KEY, fieldName TEXT);
CREATE TABLE creatorTypes (creatorTypeID INTEGER PRIMARY KEY, creatorType TEXT);
CREATE TABLE itemDataValues (valueID INTEGER PRIMARY KEY, value UNIQUE);
CREATE TABLE itemData (itemID INT, fieldID INT, valueID, PRIMARY KEY (itemID, fieldID));
CREATE TABLE itemCreators (itemID INT, creatorID INT, creatorTypeID INT, orderIndex INT);
CREATE TABLE collections (collectionID INTEGER PRIMARY KEY, collectionName TEXT, parentCollectionID INT);
CREATE TABLE collectionItems (collectionID INT, itemID INT);
CREATE TABLE deletedItems (itemID INTEGER PRIMARY KEY);
CREATE TABLE groups (groupID INTEGER PRIMARY KEY, libraryID INT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE itemTags (itemID INT, tagID INT, type INT);
"""
NEW = f"""{_SHARED}
CREATE TABLE fieldsCombined (fieldID INT PRIMARY KEY, fieldName TEXT NOT NULL);
CREATE TABLE items (itemID INTEGER PRIMARY KEY, itemTypeID INT NOT NULL, libraryID INT NOT NULL,
    key TEXT NOT NULL, version INT NOT NULL DEFAULT 0, UNIQUE (libraryID, key));
CREATE TABLE itemAttachments (itemID INTEGER PRIMARY KEY, parentItemID INT, linkMode INT, contentType TEXT,
    path TEXT);
CREATE TABLE tags (tagID INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE creators (creatorID INTEGER PRIMARY KEY, firstName TEXT, lastName TEXT, fieldMode INT);
CREATE TABLE deletedCollections (collectionID INTEGER PRIMARY KEY);
CREATE TABLE feedItems (itemID INTEGER PRIMARY KEY, guid TEXT);
CREATE TABLE libraries (libraryID INTEGER PRIMARY KEY, type TEXT NOT NULL);
INSERT INTO libraries VALUES (1, 'user'), (2, 'group'), (3, 'feed');
INSERT INTO groups VALUES (4711, 2, 'Birds');
"""
OLD = f"""{_SHARED}
CREATE TABLE items (itemID INTEGER PRIMARY KEY, itemTypeID INT NOT NULL, libraryID INT, key TEXT NOT NULL);
CREATE TABLE itemAttachments (itemID INTEGER PRIMARY KEY, sourceItemID INT, linkMode INT, mimeType TEXT,
    path TEXT);
CREATE TABLE tags (tagID INTEGER PRIMARY KEY, name TEXT NOT NULL, type INT, libraryID INT, key TEXT);
CREATE TABLE creatorData (creatorDataID INTEGER PRIMARY KEY, firstName TEXT, lastName TEXT, fieldMode INT);
CREATE TABLE creators (creatorID INTEGER PRIMARY KEY, creatorDataID INT NOT NULL);
CREATE TABLE libraries (libraryID INTEGER PRIMARY KEY, libraryType TEXT NOT NULL);
"""


class Library:
    """A database as Zotero keeps it open: exclusively locked, with a log that is not moved yet."""

    def __init__(self, folder: Path, schema: str = NEW) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path, self.is_old = folder, folder / "zotero.sqlite", schema == OLD
        self.database = sqlite3.connect(self.path, isolation_level=None)
        self.database.execute("PRAGMA locking_mode=EXCLUSIVE")
        if not self.is_old:
            self.database.execute("PRAGMA journal_mode=WAL")
            self.database.execute("PRAGMA wal_autocheckpoint=0")
        self.database.executescript(schema)
        tables = {"itemTypes": TYPES, "fields": FIELDS, "creatorTypes": ("author", "editor")}
        for table, names in tables.items():
            self.database.executemany(f"INSERT INTO {table} VALUES (?, ?)", enumerate(names, 1))
        if not self.is_old:
            self.database.execute("INSERT INTO fieldsCombined SELECT * FROM fields")
        self._next = 1

    def add(
        self,
        key: str,
        kind: str = "journalArticle",
        *,
        library: int | None = 1,
        creators: Iterable[tuple[str, str, str]] = (),
        tags: Iterable[str] = (),
        **fields: str,
    ) -> int:
        """Add an item with its fields, creators (role, family, given) and tags; return its number."""
        item, self._next = self._next, self._next + 1
        library = None if self.is_old and library == 1 else library
        self._insert("items", itemID=item, itemTypeID=TYPES.index(kind) + 1, libraryID=library, key=key)
        for name, value in fields.items():
            self.set(item, name, value)
        for order, (role, family, given) in enumerate(creators):
            number = item * 100 + order
            who = {"firstName": given, "lastName": family, "fieldMode": int(not given)}
            if self.is_old:
                self._insert("creatorData", creatorDataID=number, **who)
            self._insert("creators", creatorID=number, **({"creatorDataID": number} if self.is_old else who))
            creator = {"creatorID": number, "creatorTypeID": ("author", "editor").index(role) + 1}
            self._insert("itemCreators", itemID=item, **creator, orderIndex=order)
        for tag in tags:
            self.database.execute("INSERT OR IGNORE INTO tags (name) VALUES (?)", [tag])
            insert = "INSERT INTO itemTags SELECT ?, tagID, 0 FROM tags WHERE name = ?"
            self.database.execute(insert, [item, tag])
        return item

    def set(self, item: int, field: str, value: str) -> None:
        self.database.execute("INSERT OR IGNORE INTO itemDataValues (value) VALUES (?)", [value])
        self.database.execute(
            "INSERT OR REPLACE INTO itemData SELECT ?, ?, valueID FROM itemDataValues WHERE value = ?",
            [item, FIELDS.index(field) + 1, value],
        )

    def attach(self, parent: int, key: str, path: str) -> int:
        item = self.add(key, "attachment")
        names = ("sourceItemID", "mimeType") if self.is_old else ("parentItemID", "contentType")
        named = dict(zip(names, (parent, "application/pdf"), strict=True))
        self._insert("itemAttachments", itemID=item, **named, linkMode=0, path=path)
        return item

    def collect(self, number: int, name: str, parent: int | None, *items: int) -> None:
        self._insert("collections", collectionID=number, collectionName=name, parentCollectionID=parent)
        for item in items:
            self._insert("collectionItems", collectionID=number, itemID=item)

    def trash(self, item: int) -> None:
        self._insert("deletedItems", itemID=item)

    def _insert(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        insert = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        self.database.execute(insert, [*values.values()])

    def content(self) -> Mapping[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("zotero.sqlite*")}
