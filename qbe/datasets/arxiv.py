"""arXiv's papers of computer science to the end of 2019, and collections made of graded pairs of them.

arXiv's metadata are published under CC0. qbe's models were trained on 176,320 records of two dumps of them
(github.com/staeiou/arxiv_archive), in which papers of cs.CV, cs.LG, cs.AI and cs.IT are there through
cross-listing only. arXiv's snapshot has these papers and the others under the same ids; of a paper that was
revised since, it has the newer abstract.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import REJECTED_SUFFIX, SKIP, Reading
from qbe.corpus.sentences import unsplit
from qbe.datasets.citations import listing
from qbe.datasets.names import ARXIV_CS, GRADED_PAIRS
from qbe.datasets.releases import DatasetOptions, Report, place_of, raw_line, write_queries
from qbe.errors import DatasetError, UsageError
from qbe.query import Topic
from qbe.runs import read_graded_pairs
from qbe.types import Facet
from qbe.util.files import atomic_file

FILE = "arxiv-cs.jsonl.xz"
ARXIV = f"{ARXIV_CS}/{FILE}"  # where other commands look for the papers, below QBE_DATA

SNAPSHOT = "arxiv-metadata-oai-snapshot.json"
WHERE = "kaggle.com/datasets/Cornell-University/arxiv"
CATEGORIES = ("cs.*", "stat.ML", "eess.AS", "eess.IV")
LAST_YEAR = "2019"


def write(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write ``arxiv-cs.jsonl.xz``, each abstract as one string; return lines that summarize it.

    The source is arXiv's snapshot, its folder, or another file of arXiv's papers; by default the snapshot in
    ``$QBE_DATA/arxiv-cs``. Records that cannot be used are listed in a file beside it.
    """
    source = place_of(ARXIV_CS, options.source)
    path = source / SNAPSHOT if source is not None and source.is_dir() else source
    if path is None or not path.is_file():
        actual = f"no {path}" if path else "neither"
        raise DatasetError(
            f"expected arXiv's metadata, {SNAPSHOT}, as `source` or in $QBE_DATA/{ARXIV_CS}, found {actual}; "
            f"get it from {WHERE}"
        )
    target = output / FILE
    listed = target.with_name(target.name + REJECTED_SUFFIX)
    reading = Reading(categories=CATEGORIES, on_error=SKIP)
    papers = 0
    with (
        listing(listed) as left_out,
        atomic_file(target) as stream,
        lzma.open(stream, "wb", preset=3) as lines,
    ):
        for paper in read_corpus([str(path)], unsplit, reading, left_out):
            if (paper.year or "") <= LAST_YEAR:
                papers += 1
                lines.write(raw_line(paper))
        if not papers:
            raise DatasetError(
                f"{path}: expected papers to the end of {LAST_YEAR}, found none; give {SNAPSHOT} of {WHERE}"
            )
    return [
        f"{ARXIV_CS}: {papers:,} papers to the end of {LAST_YEAR} ({', '.join(CATEGORIES)}) in {target}",
        *([f"  {left_out.summary()}, listed in {listed}"] if left_out else []),
        f"  arXiv's metadata (CC0), from {path}. qbe's models were trained on 176,320 of them,",
        "  as the dumps of 2019-01-01 and 2020-01-01 in github.com/staeiou/arxiv_archive have them.",
    ]


def write_graded_pairs(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write the papers of graded pairs, topics (each query by three facets) and pools; return a summary.

    The source is a file of pairs or a folder of ``.tsv`` files; the corpus (default: arXiv's in QBE_DATA)
    holds their papers.
    """
    if options.source is None:
        raise UsageError("expected a file of graded pairs as `source`, found none; give one")
    source, corpus = Path(options.source), options.corpus or place_of(ARXIV, None)
    if corpus is None:
        raise UsageError(
            f"expected the papers of the pairs as `corpus`, or QBE_DATA set to a folder that holds {ARXIV}, "
            "found neither; qbe datasets arxiv-cs writes it"
        )
    pools: dict[str, list[str]] = {}
    for file in sorted(source.rglob("*.tsv")) if source.is_dir() else [source]:
        for query, pairs in read_graded_pairs(file, partial=True).items():
            pools[query] = list(dict.fromkeys([*pools.get(query, []), *(pair.paper_id for pair in pairs)]))
    if not pools:
        raise DatasetError(f"{source}: expected files of graded pairs (.tsv) in the folder, found none")
    papers = {paper_id for query, pool in pools.items() for paper_id in (query, *pool)}
    missing = set(papers)
    with atomic_file(output / "corpus.jsonl") as stream:
        for paper in read_corpus([str(corpus)], unsplit, Reading(on_error=SKIP)):
            if paper.paper_id in missing:
                missing.remove(paper.paper_id)
                stream.write(raw_line(paper))
        if missing:
            raise DatasetError(
                f"expected the {len(papers):,} papers of {source} in `corpus`, found {len(missing):,} not "
                f"there, such as {min(missing)}; give the corpus that the pairs were made of"
            )
    topics = [Topic(f"{query}_{facet}", query, facet) for query in pools for facet in Facet]
    write_queries(output, topics, {}, {topic.query_id: pools[topic.paper_id] for topic in topics})
    return [f"{GRADED_PAIRS}: {len(papers):,} papers, {len(pools)} queries by 3 facets in {output}"]
