"""An index on disk: immutable generations ``NAME/000007``, of which ``NAME/CURRENT`` names the newest.

A reader holds a shared lock on the manifest of its generation; the next writer removes what nobody reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError, IndexFormatError, file_error, input_error
from qbe.index.params import STORED, FaissParams
from qbe.models.formats import COSINE, L2
from qbe.util import files as disk
from qbe.util.files import sha256, sync, write_text

FORMAT_VERSION = 6
MANIFEST = "manifest.json"
CURRENT = "CURRENT"
NEXT = ".next"  # the folder, in an index, of an update under way
RECORDS = "papers.jsonl"
STORED_AS = {COSINE: "inner product", L2: "l2"}  # what the manifest calls a similarity
SMALL = 1 << 20  # bytes of a file up to which its digest is compared at opening
FORMER = ("segments.json", "part.json")  # in an index of several segments, or a part of one, before 0.9

_GENERATION = re.compile(r"\d{6,}")
_REBUILD = "build it again (qbe doctor --index shows what is intact)"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a generation; equal builds have the same ``digest``.

    ``corpus`` counts papers (``labelled`` as they came, or ``predicted``) and sentences; ``lucene`` has the
    version, settings and term statistics; ``dense`` the encoder's identity, how vectors compare and are
    ``stored``, FAISS's parameters ``ann``, and, where that learns, the sentences when it was ``trained``;
    ``tagger`` its identity where papers were predicted; ``files`` the size and the SHA-256 of every file.
    """

    format_version: int
    qbe_version: str
    settings: Mapping[str, Any]
    corpus: Mapping[str, Any]
    lucene: Mapping[str, Any] | None
    dense: Mapping[str, Any] | None
    tagger: Mapping[str, Any] | None
    files: Mapping[str, Mapping[str, Any]]
    digest: str

    @property
    def similarity(self) -> str:
        """How vectors are compared, one of `qbe.models.formats.SIMILARITIES`."""
        assert self.dense is not None
        return {name: similarity for similarity, name in STORED_AS.items()}[self.dense["similarity"]]


def _checksum(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def describe_files(folder: Path, leave_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below a folder."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {
        name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for name, path in files.items()
        if name not in leave_out
    }


def digest(files: Mapping[str, Mapping[str, Any]], lucene: Mapping[str, Any] | None) -> str:
    """Return a SHA-256 over all files but Lucene's, which differ by build, and Lucene's statistics."""
    content = {name: entry["sha256"] for name, entry in files.items() if not name.startswith("lucene/")}
    return _checksum([content, lucene])


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an index's newest generation, or of the generation in ``folder``."""
    path = current(folder) / MANIFEST
    try:
        record = unseal(path.read_bytes())
        if (found := record["format_version"]) != FORMAT_VERSION:
            raise IndexFormatError(
                f"{folder}: expected an index of format {FORMAT_VERSION}, found format {found}; build it "
                "again with this version of qbe"
            )
        manifest = Manifest(**record)
        for name, entry in manifest.files.items():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not isinstance(entry["bytes"], int):
                raise ValueError(f"the file {name} of {entry['bytes']} bytes")
        if any(manifest.corpus[count] < 0 for count in ("papers", "sentences")):
            raise ValueError("a negative count")
        if (dense := manifest.dense) is not None:
            if dense["similarity"] not in STORED_AS.values() or dense["stored"] not in STORED:
                raise ValueError(f"vectors stored as {dense['stored']}, compared by {dense['similarity']}")
            FaissParams.read(dense)
    except PermissionError as error:
        raise input_error(path, error) from error
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            text = "the folder of an index, found a file; of a pack it is made by: qbe pull "
            text += f"{folder} --output DIR"
        else:
            text = f"an index with a {MANIFEST}, found {error.strerror or error}; check `folder`, or build "
            text += "one with: qbe index"
        raise IndexFormatError(f"{folder}: expected {text}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(path, "a manifest", repr(error)) from error
    return manifest


def damaged(path: Path, expected: str, found: object) -> IndexFormatError:
    return IndexFormatError(f"{path}: expected {expected}, found {found}; the index is damaged: {_REBUILD}")


def seal(record: Mapping[str, Any]) -> str:
    """Return the JSON text of a description with a checksum of its values, however they are laid out."""
    return json.dumps({"checksum": _checksum(record), **record}, indent=1) + "\n"


def unseal(text: bytes) -> dict[str, Any]:
    """Return the description of a text without its checksum; raise ValueError for another text."""
    record = json.loads(text)
    if not isinstance(record, dict) or record.pop("checksum", None) != _checksum(record):
        raise ValueError("another checksum than it states")
    return record


class Files:
    """The files of a generation's folder, or of a folder that is being built; several threads may use it."""

    def __init__(self, folder: Path, expected: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Compare the sizes of the ``expected`` files (of a manifest), and the digests of small ones."""
        self.folder, self._expected = folder, expected
        self._streams: dict[str, BinaryIO] = {}
        self.verify_all(SMALL)

    def verify_all(self, below: float = math.inf) -> None:
        """Compare all files with the manifest, by digest those of fewer bytes than ``below``."""
        for name, entry in (self._expected or {}).items():
            self.verify(name, entry, entry["bytes"] < below)

    @staticmethod
    def of(folder: Path | Files) -> Files:
        return folder if isinstance(folder, Files) else Files(folder)

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file() if self._expected is None else name in self._expected

    def damaged(self, name: str, expected: str, found: object) -> IndexFormatError:
        return damaged(self.folder / name, expected, found)

    def verify(self, name: str, entry: Mapping[str, Any], by_digest: bool) -> None:
        """Compare a file with its entry in a manifest; raise IndexFormatError."""
        with self.open(name, expected := f"{entry['bytes']} bytes") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != entry["bytes"]:
                raise self.damaged(name, expected, f"{size} bytes")
            if by_digest and entry["sha256"] != hashlib.file_digest(stream, "sha256").hexdigest():
                raise self.damaged(name, f"the SHA-256 {entry['sha256'][:12]}", "another")

    def open(self, name: str, expected: str = "a file") -> BufferedReader:
        try:
            return (self.folder / name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise self.damaged(name, expected, "no file") from error
        except OSError as error:
            raise input_error(self.folder / name, error) from error

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from ``begin`` to ``end``, which must lie inside."""
        stream = self._streams.get(name) or self._streams.setdefault(name, self.open(name))
        size = os.fstat(stream.fileno()).st_size
        end = size if end is None else end
        if not 0 <= begin <= end <= size:
            raise self.damaged(name, f"the bytes {begin} to {end}", f"{size} bytes")
        return os.pread(stream.fileno(), end - begin, begin)

    def array(self, name: str, dtype: str, axes: int) -> NDArray[Any]:
        """Memory-map the array of a ``.npy`` file; raise IndexFormatError for another."""
        expected = f"an array of {dtype} with {axes} axes"
        try:
            mapped = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
            size = mapped.offset + mapped.nbytes
        except Exception as error:  # numpy parses the header as Python, and raises what that does
            found = getattr(error, "strerror", None) or "another header"
            raise self.damaged(name, expected, found) from error
        if mapped.dtype != dtype or mapped.ndim != axes or not mapped.flags.c_contiguous:
            raise self.damaged(name, expected, f"one of {mapped.dtype} with the shape {mapped.shape}")
        if size != (actual := (self.folder / name).stat().st_size):
            raise self.damaged(name, f"{size} bytes of {dtype}", f"{actual} bytes")
        return np.asarray(mapped)


class Generation(Files):
    """A generation of an index (0: before 0.9), locked against removal until it is closed or forgotten."""

    def __init__(self, index: Path, folder: Path, lock: int) -> None:
        self.index, self._locked = index, os.fstat(lock)
        self.number = int(folder.name) if folder.parent == index else 0
        self.manifest = read_manifest(folder)
        super().__init__(folder, self.manifest.files)
        self.close = weakref.finalize(self, os.close, lock)

    def is_current(self) -> bool:
        """Return whether there is no newer generation; raise IndexFormatError where it is no index now."""
        try:
            return os.path.samestat((current(self.index) / MANIFEST).stat(), self._locked)
        except OSError:
            read_manifest(self.index)  # which says what is wrong
            return False


def open_generation(index: Path) -> Generation:
    """Open the newest generation of an index, locked against removal; raise IndexFormatError, InputError."""
    while True:
        folder = current(index)
        try:
            held = disk.shared_lock(folder / MANIFEST)
        except OSError as error:
            # Superseded, and removed or being removed, between the two steps; else there is no such file.
            if not isinstance(error, BlockingIOError) and current(index) == folder:
                read_manifest(folder)
            time.sleep(0.01)
            continue
        try:
            return Generation(index, folder, held)
        except BaseException:
            os.close(held)
            raise


def current(index: Path) -> Path:
    """Return the folder of the newest generation; ``index`` itself where it has none, as before 0.9."""
    try:
        text = (index / CURRENT).read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        if any((index / name).is_file() for name in FORMER):
            raise IndexFormatError(
                f"{index}: expected an index of one segment, found several, or a part, of qbe 0.9 or before; "
                "build it again with: qbe index --overwrite"
            ) from None
        first = index / f"{1:06d}"  # of a build that was killed between its last two steps
        return first if (first / MANIFEST).is_file() and not (index / MANIFEST).exists() else index
    except (OSError, UnicodeDecodeError) as error:
        text = getattr(error, "strerror", None) or "other bytes"
    if _GENERATION.fullmatch(text) is None:
        raise IndexFormatError(
            f"{index / CURRENT}: expected the name of a generation, such as 000001, found {text!r:.60}; put "
            "back a whole copy of the index, or build it again"
        )
    return index / text


def _generations(index: Path) -> list[Path]:
    return sorted(path for path in index.glob("*") if _GENERATION.fullmatch(path.name))


def publish(staged: Path, index: Path) -> Path:
    """Make a finished folder the newest generation of an index, new or there; only under the `write_lock`."""
    disk.sync_tree(staged)
    index.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in _generations(index)), default=0) + 1
    folder = index / f"{number:06d}"
    staged.rename(folder)
    sync(index)
    write_text(index / CURRENT, f"{folder.name}\n")
    sync(index)
    sync(index.parent)
    return folder


@contextlib.contextmanager
def write_lock(index: Path) -> Iterator[None]:
    """Keep other processes from writing to an index, or building one there; ``index`` has no link in it."""
    with disk.lock(index.with_name(f".{index.name}.lock")) as alone:
        if not alone:
            raise IndexBuildError(f"{index} is being written by another process; wait until it ends")
        yield


@contextlib.contextmanager
def writing(index: str | Path) -> Iterator[Generation]:
    """Give the newest generation of an index, while no other process writes to it."""
    index = Path(os.path.realpath(index))  # the lock file is named after its last part
    open_generation(index).close()  # a folder that is no index gets no lock file
    with write_lock(index):
        clean(index)
        try:
            with contextlib.closing(open_generation(index)) as generation:
                yield generation
        except OSError as error:
            raise file_error(error, index) from error
        finally:
            clean(index)


def clean(index: Path) -> None:
    """Remove from an index older generations that nobody reads, and unfinished work; only the writer may."""
    newest = current(index)
    with contextlib.suppress(OSError):
        shutil.rmtree(index / NEXT, ignore_errors=True)
        for partial in index.glob(f".{CURRENT}.*.partial"):
            partial.unlink()
        for path in {*_generations(index)} - {newest}:
            manifest = path / MANIFEST
            lock = disk.try_exclusive_lock(manifest) if manifest.exists() else contextlib.nullcontext(True)
            with lock as unread:
                if unread:
                    manifest.unlink(missing_ok=True)  # from now on nobody can lock it
                    shutil.rmtree(path)


def verify(folder: Path) -> Manifest:
    """Compare the digests of all files of an index; raise IndexFormatError for the first damaged one."""
    with contextlib.closing(open_generation(folder)) as generation:
        generation.verify_all()
        return generation.manifest


class Checked(NamedTuple):
    """What was found of an index: ``damages`` by file, and the file of its ``papers`` unless damaged."""

    files: int
    size: int
    damages: Mapping[str, str]
    papers: Path | None


def check_index(index: Path) -> Checked:
    """Read all files of an index, and tell all damages. Raises IndexFormatError for no index."""
    damages: dict[str, str] = {}
    try:
        folder = current(index)
    except IndexFormatError as error:
        if not (generations := _generations(index)):
            raise
        folder, damages[CURRENT] = generations[-1], reason_of(error)
    try:
        entries = read_manifest(folder).files
    except IndexFormatError as error:
        if not (folder / MANIFEST).exists():
            raise
        return Checked(0, 0, {**damages, MANIFEST: reason_of(error)}, None)
    files = Files(folder)
    for name, entry in entries.items():
        try:
            files.verify(name, entry, by_digest=True)
        except (IndexFormatError, OSError) as error:
            damages[name] = reason_of(error)
    size = sum(entry["bytes"] for entry in entries.values())
    intact = RECORDS in entries and RECORDS not in damages
    return Checked(len(entries), size, damages, folder / RECORDS if intact else None)


def save_papers(checked: Checked, path: Path) -> int:
    """Write the intact papers of an index as JSON lines; return how many. Raises OutputError."""
    count = 0
    with disk.atomic_file(path) as corpus, Path(checked.papers or os.devnull).open("rb") as records:
        for count, line in enumerate(records, start=1):  # noqa: B007
            corpus.write(line)
    return count


def reason_of(error: Exception) -> str:
    return str(error).partition("found ")[2].partition("; ")[0] or str(error)
