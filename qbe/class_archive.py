"""Makes the archive of Java's classes by which every later search starts faster."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from subprocess import SubprocessError

from qbe import _jvm, processes
from qbe.errors import QbeError
from qbe.files import atomic_file

_SECONDS = 120
"""How long each of the two processes may take; they need some two seconds."""

_SEARCHES = """
import sys
from pathlib import Path

from qbe import BM25, Pipeline, Query, _jvm, open_index

_jvm.record_classes(Path(sys.argv[2]))
with open_index(sys.argv[1]) as index, Pipeline(index, BM25()) as pipeline:
    paper = next(paper for paper in index if paper.sentences)
    pipeline.search(Query(paper), k=10)
    pipeline.search(Query(paper), k=10, pool=[paper.paper_id])
"""


def make_class_archive(index: Path) -> bool:
    """Make the archive of the classes that searches of an index load, unless it is there.

    ``index`` is an index with postings; a process of its own searches it. Archives of this environment's
    former versions are removed. The archive only saves time: where it cannot be made, nothing is raised and
    nothing is left. Returns whether it was made.

    >>> make_class_archive(Path("no-index"))
    False
    """
    try:
        home, jar = _jvm.find_java(), _jvm.anserini_jar()
        archive = _jvm.class_archive(home, jar)
        if archive.is_file():
            return False
        with tempfile.TemporaryDirectory() as folder:
            classes, made = Path(folder, "classes"), Path(folder, "archive")
            _run(sys.executable, "-c", _SEARCHES, index, classes)
            files = (f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}")
            _run(home / "bin" / "java", "-Xshare:dump", *files, "-Xlog:disable", "-cp", jar)
            with atomic_file(archive) as stream:
                stream.write(made.read_bytes())
        for former in archive.parent.glob(f"{archive.name.partition('-')[0]}-*.jsa"):
            if former != archive:
                former.unlink(missing_ok=True)
    except (QbeError, OSError, SubprocessError):
        return False
    return True


def _run(*command: object) -> None:
    """Run a process; raises SubprocessError where it fails or takes too long."""
    processes.run(command, _SECONDS).check_returncode()
