"""Anserini's jar, and with it Lucene: that of an installed pyserini, else fetched once and kept in the cache.

Of pyserini's source distribution nothing but the jar is kept, and nothing is run or installed: its many
dependencies (PyTorch among them) are not needed.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from qbe.errors import MissingDependencyError, output_error
from qbe.util import processes
from qbe.util.files import atomic_file, cache_folder, make_once

log = logging.getLogger(__name__)


class Release(NamedTuple):
    """A release of pyserini: the SHA-256 of its source distribution, and the name of the jar in it."""

    version: str
    sha256: str
    jar: str

    @property
    def requirement(self) -> str:
        """What pip installs."""
        return f"pyserini=={self.version}"


PYSERINI = (
    Release(
        "1.6.0",
        "e34761d700b33613c26bc61113effc6d65598dee6ada28a33214f79350f833f4",
        "anserini-1.7.1-fatjar.jar",
    )
    if sys.version_info < (3, 12)
    else Release(
        "2.3.0",
        "68e3729fc95853f85272fb413aa3202d31bda4b73b1e657fed62212b92fd3084",
        "anserini-2.2.0-fatjar.jar",
    )
)
"""The pinned release: the later one brings Lucene 10, and wants a later Python."""


def find_jar() -> Path | None:
    """Anserini's jar inside the installed pyserini package, which is not imported, else in the cache; None
    where it is in neither.

    >>> find_jar().name
    'anserini-...-fatjar.jar'
    """
    specification = importlib.util.find_spec("pyserini")
    if specification is not None and specification.submodule_search_locations:
        folder = Path(specification.submodule_search_locations[0]) / "resources" / "jars"
        jars = sorted(folder.glob("anserini-*-fatjar.jar"))
        if jars:
            return jars[-1]
    return jar if (jar := cached_jar()).is_file() else None


def cached_jar() -> Path:
    """Where the jar of the pinned release is in the cache, or will be."""
    return cache_folder() / "java" / PYSERINI.jar


def anserini_jar() -> Path:
    """Anserini's jar as `find_jar` has it; fetched where it is missing.

    Raises MissingDependencyError where it cannot be fetched, OutputError where the cache cannot be written.
    """
    if (jar := find_jar()) is not None:
        return jar
    jar = cached_jar()
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(jar, error) from error
    make_once(
        jar,
        jar.is_file,
        lambda: _fetch(jar),
        lambda: log.info("another process fetches %s: waiting for it ...", jar.name),
    )
    return jar


def _fetch(jar: Path) -> None:
    """Download the source distribution beside the jar, take the jar out of it, and remove it."""
    import tarfile  # which searching does not need, nor HTTP

    from qbe.util.web import download

    name = f"pyserini-{PYSERINI.version}"
    archive = jar.with_name(f"{name}.tar.gz")
    log.info("downloading Lucene (the jar of %s, 110 to 165 MB), once, into %s ...", name, jar)
    digest, error = f"sha256:{PYSERINI.sha256}", MissingDependencyError
    download(_address(archive.name), archive, digest, error, _remedy())
    with tarfile.open(archive) as members, atomic_file(jar) as stream:
        member = members.extractfile(f"{name}/pyserini/resources/jars/{PYSERINI.jar}")
        assert member is not None, "the digest is right"
        shutil.copyfileobj(member, stream, 1 << 20)
    archive.unlink()


def _address(file: str) -> str:
    """Where the index that pip is configured for has a file of the pinned release.

    pip lists what it finds there, and downloads nothing but the list.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "pyserini", "-vv", "--retries", "2"]
    listed = processes.run([*command, "--disable-pip-version-check"])
    text = listed.stdout + listed.stderr
    if match := re.search(rf"Found link (\S+/{re.escape(file)})(?=[\s#,])", text):
        return match[1]
    reasons = re.findall(r"^.*(?:ERROR|No module|WARNING: Retrying).*$", text, re.MULTILINE)
    raise MissingDependencyError(
        f"expected Anserini's jar, which holds Lucene, found none, and pip finds no {file} "
        f"({(reasons or ['it is not listed'])[-1].strip()[:200]}); {_remedy()}"
    )


def _remedy() -> str:
    return (
        "connect to the network for the first search by words, or run: pip install "
        f"'{PYSERINI.requirement}'; without Lucene, dense search works"
    )
