"""The manifest of an index: what it holds, how it was made, and which bytes belong to it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from qbe.errors import IndexFormatError, input_error
from qbe.index.dense.ann import STORED, FaissParams
from qbe.index.openfiles import digest_of
from qbe.models.formats import COSINE, L2
from qbe.util.files import write_text

FORMAT_VERSION = 6
READABLE = (4, 5, 6)
"""Formats that can be read: 4 is 5 without digests of Lucene's files and of the manifest itself, 5 is
6 with names of kinds of FAISS indexes in place of factory strings.
"""
MANIFEST = "manifest.json"
SUPERSEDED = "superseded.json"
"""The name of the manifest of an index's first segment while its files are removed."""
PULLED = "pack.json"
"""The file that an index has besides, as long as it was pulled: the description of its pack."""
PART = "part.json"
"""The file that a part of an index has instead (see `qbe.index.building.parts`)."""
STORED_AS = {COSINE: "inner product", L2: "l2"}
"""What the manifest calls a similarity: vectors of unit length are compared by their inner product."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of an index, as its manifest holds it.

    ``settings`` are those of the build. ``corpus`` holds the number of papers, of those that came labelled,
    of those whose labels were ``predicted``, and of sentences, and the digest of the papers; ``lucene``
    (None without BM25) the version, settings and term statistics; ``dense`` (None without vectors) the
    encoder's identity, the dimension, the similarity, one of ``STORED_AS``, how vectors are ``stored``, and
    the parameters of the FAISS index, ``ann`` (a `qbe.index.dense.ann.FaissParams`); ``tagger`` (None where
    nothing was predicted) the tagger's identity, how many predicted sentences have each label, and how many
    predicted papers lack each facet. ``files`` gives the size of every file, and its digest. ``digest`` sums
    up corpus, postings and vectors: two builds of one corpus with the same settings agree in it.

    >>> manifest = index.manifest
    >>> manifest.corpus["papers"], manifest.corpus["sentences"], manifest.dense["dimension"]
    (128, 594, 384)
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
        """How an index with vectors compares them, one of `qbe.models.formats.SIMILARITIES`."""
        assert self.dense is not None
        stored = self.dense["similarity"]
        return next(similarity for similarity, name in STORED_AS.items() if name == stored)

    @property
    def stored(self) -> str:
        """How an index with vectors stores them, one of `qbe.index.dense.ann.STORED`."""
        assert self.dense is not None
        stored: str = self.dense["stored"]
        return stored


def describe_files(folder: Path, leave_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Size of every file below a folder, and its SHA-256.

    >>> describe_files(index.folder, leave_out=["manifest.json"]) == index.manifest.files
    True
    """
    described: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if name in leave_out:
            continue
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            described[name] = {"bytes": size, "sha256": digest_of(stream.fileno())}
    return described


def digest(files: Mapping[str, Mapping[str, Any]], lucene: Mapping[str, Any] | None) -> str:
    """One SHA-256 over the digests of all files but Lucene's, of which each build makes others, and over
    Lucene's statistics.

    >>> digest(index.manifest.files, index.manifest.lucene) == index.manifest.digest
    True
    """
    content = {name: entry["sha256"] for name, entry in files.items() if not name.startswith("lucene/")}
    text = json.dumps([content, lucene], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder of an index that is being built. Raises OutputError.

    >>> folder = Path("described")
    >>> folder.mkdir()
    >>> write_manifest(folder, dataclasses.replace(index.manifest, files={}))
    >>> read_manifest(folder).digest == index.manifest.digest
    True
    """
    write_text(folder / MANIFEST, seal(dataclasses.asdict(manifest)))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of an index.

    Raises IndexFormatError for a folder that is no index, for another format version, and for a damaged one,
    InputError for one that may not be read.

    >>> read_manifest(Path("indexes/sample")).settings["encoder"]
    'facet-encoder'
    """
    path = folder / MANIFEST
    if (folder / PART).is_file():
        raise IndexFormatError(
            f"{folder}: expected an index, found a part of one; join all parts with: qbe index --merge"
        )
    try:
        record = unseal(path.read_bytes())
        version = record["format_version"]
        if version not in READABLE:
            raise IndexFormatError(
                f"{folder}: expected an index of format {' or '.join(map(str, READABLE))}, found format "
                f"{version}; build it again with this version of qbe"
            )
        return _checked(Manifest(**record))
    except PermissionError as error:
        raise input_error(path, error) from error
    except NotADirectoryError as error:
        raise IndexFormatError(
            f"{folder}: expected the folder of an index, found a file; of a pack it is made by: qbe pull "
            f"{folder} --output DIR"
        ) from error
    except OSError as error:
        raise IndexFormatError(
            f"{folder}: expected an index with a {MANIFEST}, found {error.strerror or error}; "
            "check `folder`, or build one with: qbe index"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IndexFormatError(
            f"{path}: expected a manifest, found {error!r}; the index is damaged: build it again (qbe doctor "
            "--index shows what is intact)"
        ) from error


def _checked(manifest: Manifest) -> Manifest:
    """The manifest; raises ValueError, TypeError, KeyError or AttributeError for values that none has."""
    for name, entry in manifest.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not isinstance(entry["bytes"], int):
            raise ValueError(f"the file {name} of {entry['bytes']} bytes")
    if any(manifest.corpus[count] < 0 for count in ("papers", "sentences")):
        raise ValueError("a negative count")
    if manifest.dense is not None and manifest.dense["similarity"] not in STORED_AS.values():
        raise ValueError(f"the similarity {manifest.dense['similarity']}")
    if manifest.dense is not None and manifest.dense["stored"] not in STORED:
        raise ValueError(f"vectors stored as {manifest.dense['stored']}")
    if manifest.dense is not None:
        FaissParams.read(manifest.dense)
    return manifest


CHECKSUM = "checksum"


def seal(record: Mapping[str, Any]) -> str:
    """The JSON text of a description with its checksum: the SHA-256 of its values, however they are laid out.

    >>> unseal(seal({"papers": 2}).encode())
    {'papers': 2}
    """
    return json.dumps({CHECKSUM: checksum(record), **record}, indent=1) + "\n"


def unseal(text: bytes) -> dict[str, Any]:
    r"""The description of a text, without its checksum; one of an older version may have none.

    Raises ValueError for a text that is no JSON object, or has another checksum.

    >>> unseal(seal({"papers": 2}).replace("2\n", "3\n").encode())
    Traceback (most recent call last):
        ...
    ValueError: another checksum than it states
    """
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("objects nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}")
    stated = record.pop(CHECKSUM, None)
    if stated is not None and stated != checksum(record):
        raise ValueError("another checksum than it states")
    return record


def checksum(record: Mapping[str, Any]) -> str:
    """The SHA-256 of the values of a description, however they are laid out."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
