"""``qbe demo``: a first search, in the sample that is part of the package."""

from __future__ import annotations

import qbe
from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EPILOG = """\
Indexes the 128 invented papers of the sample, searches papers like one of them by its method and by its
background, and says what to do next. Nothing but Lucene is downloaded, where pyserini is not installed, and
without a network the sample is searched by vectors alone. The index is kept in demo/sample in $QBE_CACHE or
~/.cache/qbe, and used the next time.
"""
LINE = "Search the sample that is part of the package, and see what a facet is."
PARSER = common.Parser("qbe demo", LINE, epilog=EPILOG)
ABOUT = (
    "Each of the 128 papers is invented and has a problem, a method and a finding, which vary independently: "
    "any kind of method meets any kind of problem in exactly two papers. So it shows what a facet changes. "
    "It is a demonstration, not a benchmark: scores on it say nothing about search in real literature."
)
PAPER, HITS = "s036", 3
"""A paper of the sample: self-supervised vectors (method) for suggesting citations (background)."""


def main(arguments: list[str]) -> None:
    """Index the sample, search it, and print what to do next."""
    PARSER.parse_args(arguments)

    import shlex
    import shutil
    import sys
    import textwrap
    from pathlib import Path

    from qbe import datasets
    from qbe.datasets.sample import FACTORS, grade, read_layout
    from qbe.search.present import to_table

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    layout = read_layout(Path(datasets.__path__[0], "sample", "layout.json"))
    with open_sample_index(lambda line: print(line, file=sys.stderr)) as index:
        print(f"The sample, {len(index)} papers, is indexed in {index.folder}\n", flush=True)
        folder = shlex.quote(str(index.folder))
        with qbe.Pipeline(index) as pipeline:
            for facet in (qbe.Facet.METHOD, qbe.Facet.BACKGROUND):
                query = qbe.Query(index.paper(PAPER), facet)
                hits = pipeline.search(query, k=HITS)
                counts = []
                for factor, whose in ((qbe.Facet.METHOD, "share the query's"), (qbe.Facet.BACKGROUND, "its")):
                    # Grades from 2 on are of one family.
                    sharing = sum(grade(layout, PAPER, hit.paper_id, factor) >= 2 for hit in hits)
                    family = layout.places[PAPER][factor].family
                    counts.append(f"{sharing} {whose} kind of {FACTORS[factor]} ({family})")
                verdict = f"Of these {len(hits)} papers {', '.join(counts)}."
                command = f"qbe search --index {folder} --paper {PAPER} --facet {facet} --hits {HITS}"
                print(f"$ {command} --format table\n{to_table(index.paper, query, hits, width)}\n")
                print(f"{textwrap.fill(verdict, width, break_on_hyphens=False)}\n", flush=True)
    print(f"About the sample\n\n{textwrap.fill(ABOUT, width)}\n\nWhat to do next\n")
    for what, how in {
        "search by words alone": "the commands above with --first-stage bm25 --rerank none",
        "search with your own text": f'qbe search --index {folder} --text "We ..." --facet method',
        "index your own papers": "qbe index --corpus FILE --output DIR",
        "check the installation": "qbe doctor",
        "read on": "README.md, docs/searching.md, docs/indexing.md; qbe COMMAND --help",
    }.items():
        print(f"  {what:<25}  {how}")


def sample_papers() -> list[qbe.Paper]:
    from pathlib import Path

    from qbe import datasets
    from qbe.corpus import read_jsonl
    from qbe.datasets.sample import PAPERS

    return list(read_jsonl(Path(datasets.__path__[0], "sample", PAPERS)))


def open_sample_index(report: Callable[[str], object]) -> qbe.Index:
    """The sample's index in the cache; it is built, and ``report`` called with a line before, where it is not
    there, is damaged, or was built of another sample or with another encoder.
    """
    from contextlib import suppress

    from qbe.index.jvm import anserini_jar, find_jar
    from qbe.models.cards import DEFAULT_ENCODER
    from qbe.util.files import cache_folder

    papers, folder = sample_papers(), cache_folder() / "demo" / "sample"
    with suppress(qbe.IndexFormatError, qbe.EncoderMismatchError):
        index = qbe.open_index(folder, encoder=DEFAULT_ENCODER)
        lacks_words = index.manifest.lucene is None and find_jar() is not None
        if index.manifest.dense is not None and not lacks_words and list(index) == papers:
            return index
        index.close()
    report(f"indexing the sample in {folder} ...")
    try:
        anserini_jar()
    except qbe.MissingDependencyError as error:
        report(f"the searches below use vectors alone: {error}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise qbe.OutputError(
            f"cannot write {folder}: no permission; set QBE_CACHE to another folder"
        ) from None
    return qbe.build_index(folder, papers, qbe.BuildSettings(bm25=find_jar() is not None), overwrite=True)
