"""An index on disk: immutable generations ``NAME/000007``, of which ``NAME/CURRENT`` names the newest.

A reader holds a shared lock on the manifest of its generation; the next writer removes what nobody reads.
"""

import contextlib
import dataclasses
import fcntl
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
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexBuildError, IndexFormatError, OutputError, UsageError, file_error, input_error
from qbe.models import HEADERS
from qbe.models.formats import COSINE, L2
from qbe.util.files import lock, sha256, sync, sync_tree, write_text

FORMAT_VERSION = 6
MANIFEST = "manifest.json"
CURRENT = "CURRENT"
NEXT = ".next"  # the folder, in an index, of an update under way
RECORDS = "papers.jsonl"
STORED_AS = {COSINE: "inner product", L2: "l2"}  # what the manifest calls a similarity
SMALL = 1 << 20  # bytes of a file up to which its digest is compared at opening
FORMER = ("segments.json", "part.json")  # in an index of several segments, or a part of one, before 0.9

AUTO = "auto"
# The factory string of an exhaustive index over vectors in half precision, which holds them as they are.
EXACT = "SQfp16"

FLOAT16, INT8 = "float16", "int8"
STORED = (FLOAT16, INT8)

AUTO_SENTENCES = 200_000  # sentences up to which ``auto`` means an exact index and half precision
MIN_CANDIDATES = 2000  # sentences that are looked up for each sentence of a query, at least
PROBE_FRACTION = 4  # a search reads nlist / 4 of the lists by default

_GENERATION = re.compile(r"\d{6,}")
_LISTS = re.compile(r"IVF(\d+)")
_ROUNDED = re.compile(r"PQ|SQ[468]|SQbf16|RQ|LSQ|LSH|ITQ|PCA|RR")
_CODES = re.compile(r"PQ(\d+)(?:x(\d+))?")


@dataclass(frozen=True, slots=True)
class FaissParams:
    """A FAISS index as a manifest holds it.

    A search reads ``nprobe`` lists (None where there are none) and looks up at least ``depth``
    sentences for each sentence of a query; ``seed`` draws the sample that centroids and codes learn from.
    """

    factory: str = EXACT
    nprobe: int | None = None
    depth: int = MIN_CANDIDATES
    seed: int = 0

    @property
    def nlist(self) -> int | None:
        match = _LISTS.search(self.factory)
        return int(match[1]) if match else None

    @property
    def learns(self) -> bool:
        """Whether centroids or codes are learned from the vectors."""
        return self.nlist is not None or _ROUNDED.search(self.factory) is not None

    @classmethod
    def read(cls, dense: Mapping[str, Any]) -> "FaissParams":
        """Read a manifest's ``dense``."""
        return cls(**{name: dense["ann"][name] for name in cls.__dataclass_fields__})


def resolve(faiss: str, sentences: int, dimension: int) -> FaissParams:
    """Return the parameters for a factory string, or for ``auto``.

    ``auto`` is exact up to AUTO_SENTENCES sentences; above, there are as many lists as sentences in each, to
    a power of two, of 4-bit codes for three dimensions each (or four, two or one).
    """
    if faiss == AUTO:
        nlist = int(2 ** round(math.log2(max(sentences, 1)) / 2))
        numbers = next((size for size in (3, 4, 2) if dimension % (2 * size) == 0), 1)
        faiss = f"IVF{nlist},PQ{dimension // numbers}x4fs" if sentences > AUTO_SENTENCES else EXACT
    params = FaissParams(faiss)
    lists, codes = params.nlist or 0, _CODES.search(faiss)
    values = 2 ** int(codes[2] or 8) if codes else 0
    if max(lists, values) > sentences:
        raise UsageError(
            f"expected `faiss` of at most {sentences} lists and values of a code, which are learned from as "
            f"many sentences, found {faiss}; choose another, or auto"
        )
    if not lists:
        return params
    return dataclasses.replace(params, nprobe=min(max(lists // PROBE_FRACTION, PROBE_FRACTION), lists))


def resolve_stored(stored: str, sentences: int) -> str:
    """Resolve how vectors are stored; ``auto``: half precision for few sentences, bytes for many."""
    if stored != AUTO:
        return stored
    return INT8 if sentences > AUTO_SENTENCES else FLOAT16


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


def checksum(record: Any) -> str:
    """Return the SHA-256 of a JSON value, however it is laid out."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def describe_files(folder: Path, leave_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below a folder."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for name, path in paths.items()
        if path.is_file() and name not in leave_out
    }


def digest(files: Mapping[str, Mapping[str, Any]], lucene: Mapping[str, Any] | None) -> str:
    """Return a SHA-256 over all files but Lucene's, which differ by build, and Lucene's statistics."""
    content = {name: entry["sha256"] for name, entry in files.items() if not name.startswith("lucene/")}
    return checksum([content, lucene])


def read_manifest(folder: Path, newest: bool = True) -> Manifest:
    """Read the manifest of an index's ``newest`` generation, or of the one in ``folder``."""
    path = (current(folder) if newest else folder) / MANIFEST
    try:
        record = json.loads(path.read_bytes())
        if record.pop("checksum", None) != checksum(record):
            raise ValueError("another checksum than it states")
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


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest with a checksum of its values."""
    record = dataclasses.asdict(manifest)
    write_text(folder / MANIFEST, json.dumps({"checksum": checksum(record), **record}, indent=1) + "\n")


def damaged(path: Path, expected: str, found: object) -> IndexFormatError:
    """Return the error for a file of an index that is not as it was written."""
    return IndexFormatError(
        f"{path}: expected {expected}, found {found}; the index is damaged: build it again (qbe doctor "
        "--index shows what is intact)"
    )


class Files:
    """The files of a generation's folder, or of a folder that is being built; several threads may use it."""

    def __init__(self, folder: Path, entries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.folder, self._entries = folder, entries or {}
        self._streams: dict[str, BinaryIO] = {}

    def verify(self, below: float = math.inf) -> None:
        """Compare all files with the manifest, by digest those of fewer bytes; raise IndexFormatError."""
        for _, error in self.damages(below):
            raise error

    def damages(self, below: float = math.inf) -> Iterator[tuple[str, Exception]]:
        """Yield the names of files that are not as the manifest says, and the errors that tell why."""
        for name, entry in self._entries.items():
            path, expected = self.folder / name, f"{entry['bytes']} bytes"
            try:
                with self.open(name, expected) as stream:
                    if (size := os.fstat(stream.fileno()).st_size) != entry["bytes"]:
                        raise damaged(path, expected, f"{size} bytes")
                    if size < below and entry["sha256"] != hashlib.file_digest(stream, "sha256").hexdigest():
                        raise damaged(path, f"the SHA-256 {entry['sha256'][:12]}", "another")
            except (IndexFormatError, OSError) as error:
                yield name, error

    def open(self, name: str, expected: str = "a file") -> BufferedReader:
        try:
            return (self.folder / name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise damaged(self.folder / name, expected, "no file") from error
        except OSError as error:
            raise input_error(self.folder / name, error) from error

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a file from ``begin`` to ``end``, which must lie inside."""
        stream = self._streams.get(name) or self._streams.setdefault(name, self.open(name))
        size = os.fstat(stream.fileno()).st_size
        end = size if end is None else end
        if not 0 <= begin <= end <= size:
            raise damaged(self.folder / name, f"the bytes {begin} to {end}", f"{size} bytes")
        return os.pread(stream.fileno(), end - begin, begin)

    def array(self, name: str, dtype: str, axes: int) -> NDArray[Any]:
        """Memory-map the array of a ``.npy`` file; raise IndexFormatError for another."""
        path, expected = self.folder / name, f"an array of {dtype} with {axes} axes"
        try:
            with HEADERS:
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            size = mapped.offset + mapped.nbytes
        except Exception as error:  # numpy parses the header as Python, and raises what that does
            raise damaged(path, expected, getattr(error, "strerror", None) or "another header") from error
        if mapped.dtype != dtype or mapped.ndim != axes or not mapped.flags.c_contiguous:
            raise damaged(path, expected, f"one of {mapped.dtype} with the shape {mapped.shape}")
        if size != (actual := path.stat().st_size):
            raise damaged(path, f"{size} bytes of {dtype}", f"{actual} bytes")
        return np.asarray(mapped)


class Generation(Files):
    """A generation of an index (0: before 0.9), locked against removal until it is closed or forgotten."""

    def __init__(self, index: Path, folder: Path, held: IO[bytes]) -> None:
        self.index, self._held = index, os.fstat(held.fileno())
        self.close = weakref.finalize(self, held.close)
        self.number = int(folder.name) if folder.parent == index else 0
        self.manifest = read_manifest(folder)
        super().__init__(folder, self.manifest.files)
        self.verify(SMALL)

    def is_current(self) -> bool:
        """Return whether there is no newer generation; raise IndexFormatError where it is no index now."""
        try:
            return os.path.samestat((current(self.index) / MANIFEST).stat(), self._held)
        except OSError:
            read_manifest(self.index)  # which says what is wrong
            return False


def open_generation(index: Path) -> Generation:
    """Open the newest generation of an index, locked against removal; raise IndexFormatError, InputError."""
    while True:
        folder = current(index)
        if held := _locked(folder / MANIFEST, fcntl.LOCK_SH):
            return Generation(index, folder, held)
        # Superseded, and removed or being removed, between the two steps; else there is no such file.
        if current(index) == folder:
            read_manifest(folder)
        time.sleep(0.01)


def _locked(manifest: Path, kind: int) -> IO[bytes] | None:
    """Open a manifest locked until it is closed; None where it is gone, or locked by others."""
    try:
        stream = manifest.open("rb")
    except OSError:
        return None
    is_usable = True
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except OSError as error:  # on a file system without locks generations are read, and never removed
        is_usable = kind != fcntl.LOCK_EX and not isinstance(error, BlockingIOError)
    if is_usable and manifest.exists():
        return stream
    stream.close()
    return None


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
    sync_tree(staged)
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
    if not index.name or any("\ud800" <= each <= "\udfff" for each in str(index)):  # which Java cannot open
        raise OutputError(
            f"cannot write {str(index)!a}: expected a folder that has a name, in UTF-8; choose another"
        )
    with lock(index.with_name(f".{index.name}.lock")) as alone:
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
    with contextlib.suppress(OSError, IndexFormatError):
        shutil.rmtree(index / NEXT, ignore_errors=True)
        for partial in index.glob(f".{CURRENT}.*.partial"):
            partial.unlink()
        for folder in {index, *_generations(index)} - {newest}:
            manifest = folder / MANIFEST
            held = _locked(manifest, fcntl.LOCK_EX)
            if held is None and manifest.exists():
                continue  # somebody reads it
            with held or contextlib.nullcontext():
                if folder != index:
                    manifest.unlink(missing_ok=True)  # from now on nobody can lock it
                    shutil.rmtree(folder)
                elif held is not None:  # files beside the generations, of before 0.9
                    for name in (*read_manifest(index, newest=False).files, MANIFEST):
                        (index / name).unlink(missing_ok=True)
                    shutil.rmtree(index / "lucene", ignore_errors=True)


def check_index(index: Path) -> tuple[Mapping[str, Mapping[str, Any]], dict[str, str], Path | None]:
    """Read all files of an index; return their entries in its manifest, all damages by file, and the file of
    its papers unless it is damaged. Raises IndexFormatError for no index.
    """
    folder = current(index)
    try:
        entries = read_manifest(folder).files
    except IndexFormatError as error:
        if not (folder / MANIFEST).exists():
            raise
        return {}, {MANIFEST: reason_of(error)}, None
    damages = {name: reason_of(error) for name, error in Files(folder, entries).damages()}
    return entries, damages, folder / RECORDS if RECORDS in entries and RECORDS not in damages else None


def reason_of(error: Exception) -> str:
    return str(error).partition("found ")[2].partition("; ")[0] or str(error)
