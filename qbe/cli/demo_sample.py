"""The sample: its index, searches in it as commands and tables, what they mean, and what to do next."""

from __future__ import annotations

import shlex
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

from qbe.corpus import read_jsonl
from qbe.datasets.sample import FACTORS, PAPERS, Layout, grade
from qbe.errors import (
    EncoderMismatchError,
    IndexFormatError,
    MissingDependencyError,
    OutputError,
    output_error,
)
from qbe.index.anserini import anserini_jar, find_jar
from qbe.index.building.settings import BuildSettings
from qbe.index.index import Index
from qbe.index.opening import build_index, open_index
from qbe.models.cards import DEFAULT_ENCODER
from qbe.query import Query
from qbe.search.pipeline import Pipeline
from qbe.search.present import to_table
from qbe.types import Facet, Paper
from qbe.util.files import cache_folder, publish_directory

SAMPLE = Path(str(resources.files("qbe.datasets"))) / "sample"
"""The folder of the sample in the package."""


def default_folder() -> Path:
    """Where the index is kept.

    >>> default_folder().parts[-2:]
    ('demo', 'sample')
    """
    return cache_folder() / "demo" / "sample"


def sample_papers() -> list[Paper]:
    """The papers of the sample, in order.

    >>> len(sample_papers())
    128
    """
    return list(read_jsonl(SAMPLE / PAPERS))


def open_sample_index(report: Callable[[str], object]) -> Index:
    """The sample's index in the cache; it is built where it is not there, is damaged, or was built of another
    sample or with another encoder. The caller closes what is returned.

    ``report`` is called with a line before something is built. The index appears complete or not at all; when
    building is interrupted, nothing is left. Raises OutputError where the cache cannot be written, and what
    `qbe.index.opening.build_index` raises.
    """
    papers, folder = sample_papers(), default_folder()
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
    here.

    Raises IndexFormatError or EncoderMismatchError for anything else.
    """
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


ABOUT = (
    "Each of the 128 papers is invented and has a problem, a method and a finding, which vary independently: "
    "any kind of method meets any kind of problem in exactly two papers. So it shows what a facet changes. "
    "It is a demonstration, not a benchmark: scores on it say nothing about search in real literature."
)


def about_the_sample(width: int) -> str:
    """What the sample is for.

    >>> about_the_sample(60).splitlines()[:2]
    ['About the sample', '']
    """
    return f"About the sample\n\n{textwrap.fill(ABOUT, width)}"


def next_steps(folder: Path) -> str:
    """Commands to continue with; ``folder`` is the sample's index.

    >>> print(next_steps(Path("demo")))
    What to do next
    <BLANKLINE>
      search by words alone      the commands above with --first-stage bm25 --rerank none
      search with your own text  qbe search --index demo --text "We ..." --facet method
      index your own papers      qbe index --corpus FILE --output DIR
      check the installation     qbe doctor
      read on                    README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help
    """
    index = shlex.quote(str(folder))
    rows = {
        "search by words alone": "the commands above with --first-stage bm25 --rerank none",
        "search with your own text": f'qbe search --index {index} --text "We ..." --facet method',
        "index your own papers": "qbe index --corpus FILE --output DIR",
        "check the installation": "qbe doctor",
        "read on": "README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help",
    }
    lines = (f"  {what:<{max(map(len, rows))}}  {how}" for what, how in rows.items())
    return "\n".join(["What to do next", "", *lines])


PAPER = "s036"
"""A paper of the sample: self-supervised vectors (method) for suggesting citations (background)."""

FACETS = (Facet.METHOD, Facet.BACKGROUND)
HITS = 3

_SAME_FAMILY = 2
"""The least grade of papers of one family (see `qbe.datasets.sample.grade`)."""


def searches(pipeline: Pipeline, layout: Layout, width: int) -> Iterator[str]:
    """Search for each facet; gives the command that does the same, its table, and what the layout says of the
    papers found.
    """
    index = pipeline.index
    for facet in FACETS:
        query = Query(index.paper(PAPER), facet)
        hits = pipeline.search(query, k=HITS)
        table = to_table(index.paper, query, hits, width)
        verdict = textwrap.fill(
            in_layout(layout, [hit.paper_id for hit in hits]), width, break_on_hyphens=False
        )
        yield f"$ {command(Path(index.folder), facet)}\n{table}\n\n{verdict}\n"


def command(folder: Path, facet: Facet) -> str:
    """The command that searches as `searches` does, to be pasted into a shell.

    >>> command(Path("my indexes"), Facet.METHOD)
    "qbe search --index 'my indexes' --paper s036 --facet method --hits 3 --format table"
    """
    folder_text = shlex.quote(str(folder))
    return f"qbe search --index {folder_text} --paper {PAPER} --facet {facet} --hits {HITS} --format table"


def in_layout(layout: Layout, paper_ids: list[str]) -> str:
    """How many papers share the kind of method and the kind of problem of the query paper.

    >>> from qbe.datasets.sample import read_layout
    >>> from qbe.cli.demo_sample import SAMPLE
    >>> in_layout(read_layout(SAMPLE / "layout.json"), ["s051", "s007", "s059"])
    "Of these 3 papers 2 share the query's kind of method (contrastive-learning), 1 its kind of problem
    (scholarly-search)."
    """
    counts = []
    for number, facet in enumerate(FACETS):
        sharing = sum(grade(layout, PAPER, paper_id, facet) >= _SAME_FAMILY for paper_id in paper_ids)
        whose = "its" if number else "share the query's"
        family = layout.places[PAPER][facet].family
        counts.append(f"{sharing} {whose} kind of {FACTORS[facet]} ({family})")
    return f"Of these {len(paper_ids)} papers {', '.join(counts)}."
