"""``qbe demo``: a first search, in the sample that is part of the package."""

from __future__ import annotations

from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from qbe.index.index import Index
    from qbe.search.session import Pipeline
    from qbe.types import Paper

PROGRAM = "qbe demo"
EPILOG = """\
Indexes the 128 invented papers of the sample, searches papers like one of them by its method and by its
background, and says what to do next. Nothing but Lucene is downloaded, where pyserini is not installed, and
without a network the sample is searched by vectors alone. The index is kept in demo/sample in $QBE_CACHE or
~/.cache/qbe, and used the next time.
"""
ABOUT = (
    "Each of the 128 papers is invented and has a problem, a method and a finding, which vary independently: "
    "any kind of method meets any kind of problem in exactly two papers. So it shows what a facet changes. "
    "It is a demonstration, not a benchmark: scores on it say nothing about search in real literature."
)
PAPER, HITS = "s036", 3
"""A paper of the sample: self-supervised vectors (method) for suggesting citations (background)."""


def parser() -> Parser:
    """The command's options."""
    return Parser(PROGRAM, "Search the sample that is part of the package, and see what a facet is.", EPILOG)


def main(arguments: list[str]) -> None:
    """Index the sample, search it, and print what to do next."""
    parser().parse_args(arguments)

    import shlex
    import shutil
    import sys
    import textwrap

    from qbe.search.session import Pipeline

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    with open_sample_index(lambda line: print(line, file=sys.stderr)) as index:
        print(f"The sample, {len(index)} papers, is indexed in {index.folder}\n", flush=True)
        with Pipeline(index) as pipeline:
            for text in _searches(pipeline, width):
                print(text, flush=True)
        print(f"About the sample\n\n{textwrap.fill(ABOUT, width)}\n")
        steps = {
            "search by words alone": "the commands above with --first-stage bm25 --rerank none",
            "search with your own text": f"qbe search --index {shlex.quote(str(index.folder))} --text "
            '"We ..." --facet method',
            "index your own papers": "qbe index --corpus FILE --output DIR",
            "check the installation": "qbe doctor",
            "read on": "README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help",
        }
        lines = (f"  {what:<{max(map(len, steps))}}  {how}" for what, how in steps.items())
        print("\n".join(["What to do next", "", *lines]))


def _searches(pipeline: Pipeline, width: int) -> Iterator[str]:
    """Search for each facet; gives the command that does the same, its table, and how many papers found share
    the kind of method and the kind of problem of the query paper.
    """
    import shlex
    import textwrap

    from qbe.datasets.sample import FACTORS, grade, read_layout
    from qbe.query import Query
    from qbe.search.writers import to_table
    from qbe.types import Facet

    index, layout = pipeline.index, read_layout(sample_folder() / "layout.json")
    for facet in (Facet.METHOD, Facet.BACKGROUND):
        query = Query(index.paper(PAPER), facet)
        hits = pipeline.search(query, k=HITS)
        counts = []
        for factor, whose in ((Facet.METHOD, "share the query's"), (Facet.BACKGROUND, "its")):
            sharing = sum(grade(layout, PAPER, hit.paper_id, factor) >= 2 for hit in hits)  # of one family
            family = layout.places[PAPER][factor].family
            counts.append(f"{sharing} {whose} kind of {FACTORS[factor]} ({family})")
        verdict = textwrap.fill(
            f"Of these {len(hits)} papers {', '.join(counts)}.", width, break_on_hyphens=False
        )
        command = f"qbe search --index {shlex.quote(str(index.folder))} --paper {PAPER} --facet {facet}"
        table = to_table(index.paper, query, hits, width)
        yield f"$ {command} --hits {HITS} --format table\n{table}\n\n{verdict}\n"


def sample_folder() -> Path:
    """The folder of the sample in the package."""
    from importlib import resources
    from pathlib import Path

    return Path(str(resources.files("qbe.datasets"))) / "sample"


def sample_papers() -> list[Paper]:
    """The papers of the sample, in order.

    >>> len(sample_papers())
    128
    """
    from qbe.corpus import read_jsonl
    from qbe.datasets.sample import PAPERS

    return list(read_jsonl(sample_folder() / PAPERS))


def open_sample_index(report: Callable[[str], object]) -> Index:
    """The sample's index in the cache; it is built where it is not there, is damaged, or was built of another
    sample or with another encoder. The caller closes what is returned.

    ``report`` is called with a line before something is built. The index appears complete or not at all; when
    building is interrupted, nothing is left. Raises OutputError where the cache cannot be written, and what
    `qbe.index.index.build_index` raises.
    """
    from contextlib import suppress

    from qbe.errors import EncoderMismatchError, IndexFormatError, MissingDependencyError
    from qbe.index.jvm import anserini_jar, find_jar
    from qbe.util.files import cache_folder

    papers, folder = sample_papers(), cache_folder() / "demo" / "sample"
    if folder.exists():
        with suppress(IndexFormatError, EncoderMismatchError):
            return _open(folder, papers)
    report(f"indexing the sample in {folder} ...")
    try:
        anserini_jar()
    except MissingDependencyError as error:
        report(f"the searches below use vectors alone: {error}")
    _build(folder, papers, bm25=find_jar() is not None)
    return _open(folder, papers)


def _open(folder: Path, papers: Sequence[Paper]) -> Index:
    """Open an index of these papers, with vectors of the default encoder, and with postings where Lucene is
    here; raises IndexFormatError or EncoderMismatchError for anything else.
    """
    from qbe.errors import IndexFormatError
    from qbe.index.index import open_index
    from qbe.index.jvm import find_jar
    from qbe.models.cards import DEFAULT_ENCODER

    index = open_index(folder, encoder=DEFAULT_ENCODER)
    try:
        lacks_words = index.manifest.lucene is None and find_jar() is not None
        if lacks_words or index.manifest.dense is None or list(index) != papers:
            raise IndexFormatError(f"{folder}: expected postings and vectors of the sample, found others")
    except BaseException:
        index.close()
        raise
    return index


def _build(folder: Path, papers: Sequence[Paper], *, bm25: bool) -> None:
    """Build the index beside ``folder`` and move it there in one step."""
    import tempfile
    from pathlib import Path

    from qbe.errors import OutputError, output_error
    from qbe.index.index import build_index
    from qbe.index.source import BuildSettings
    from qbe.util.files import publish_directory

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent)
    except OSError as error:
        raise output_error(folder, error) from error
    with beside as name:
        try:
            build_index(Path(name, "index"), papers, BuildSettings(bm25=bm25)).close()
        except OutputError as error:  # it may say that a build can be resumed, but this one is removed
            raise OutputError(
                f"cannot write {folder}: no room, or no permission; set QBE_CACHE to another folder"
            ) from error
        publish_directory(Path(name, "index"), folder)
