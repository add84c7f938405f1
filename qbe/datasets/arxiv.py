"""Collections of arXiv's papers: ``mini`` in the package, computer science to the end of 2019, graded pairs.

arXiv's metadata are published under CC0. qbe's models were trained on 176,320 records of two dumps of them
(github.com/staeiou/arxiv_archive), in which papers of cs.CV, cs.LG, cs.AI and cs.IT are there through
cross-listing only. arXiv's snapshot has these papers and the others under the same ids; of a paper that was
revised since, it has the newer abstract.

Blended papers are those of FaBLE (Do et al., 2025): the background of one, the method of another, the result
of a third, so that facets disagree in training. FaBLE's units are written by a language model; those here are
the labelled sentences of real papers.
"""

import csv
import json
import lzma
import random
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import REJECTED_SUFFIX, SKIP, Reading
from qbe.corpus.sentences import unsplit
from qbe.datasets import ARXIV_CS, GRADED_PAIRS
from qbe.datasets.citations import listing
from qbe.datasets.releases import DatasetOptions, Report, place_of, raw_line, write_papers, write_queries
from qbe.errors import DatasetError, UsageError
from qbe.query import Topic
from qbe.runs import PAIRS_HEADER, GradedPair, read_graded_pairs
from qbe.types import Facet, Paper
from qbe.util.files import atomic_file, write_text


def _packaged(name: str) -> bytes:
    """Return the bytes of a file of the collection."""
    try:
        return resources.files("qbe.datasets").joinpath("mini", name).read_bytes()
    except OSError as error:
        raise DatasetError(
            f"expected {name} in the installed package, found none ({error.strerror}); install qbe again"
        ) from error


def corpus() -> bytes:
    """Return the 3,000 papers as JSON lines."""
    return lzma.decompress(_packaged("papers.jsonl.xz"))


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_packaged(name).decode().splitlines(), delimiter="\t"))


def grades(query: str) -> dict[str, dict[str, int]]:
    """Return the grades of a query paper's candidates by facet."""
    return {
        row["paper_id"]: {facet.value: int(row[facet.value]) for facet in Facet}
        for row in rows("judgments.tsv")
        if row["query_id"] == query
    }


def write_mini(_options: DatasetOptions, output: Path, _report: Report) -> list[str]:
    """Write the collection to a folder, its closed queries to ``closed/`` there; return a line a part."""
    papers = corpus()
    write_text(output / "corpus.jsonl", papers.decode())
    parts: dict[str, dict[str, list[dict[str, str]]]] = {"open": {}, "closed": {}}
    part_of = {row["query_id"]: parts[row["part"]] for row in rows("queries.tsv")}
    for row in rows("judgments.tsv"):
        part_of[row["query_id"]].setdefault(row["query_id"], []).append(row)
    lines = [f"mini: {len(papers.splitlines()):,} papers"]
    for name, folder in (("open", output), ("closed", output / "closed")):
        folder.mkdir(exist_ok=True)
        count = _write_queries(parts[name], folder)
        lines.append(f"{name} queries: {len(parts[name])}, each in 3 facets; {count:,} graded pairs")
    return lines


def _write_queries(judged: Mapping[str, Sequence[Mapping[str, str]]], folder: Path) -> int:
    """Write topics, qrels, pools and two folds (every other query) of judged candidates; return how many."""
    topics = [Topic(f"{query}_{facet}", query, facet) for query in judged for facet in Facet]
    pools = {topic.query_id: [row["paper_id"] for row in judged[topic.paper_id]] for topic in topics}
    qrels, folds = {}, {}
    for facet in Facet:
        ids = {topic.query_id: topic.paper_id for topic in topics if topic.facet is facet}
        qrels[f"mini.{facet}.qrels"] = {
            query_id: {row["paper_id"]: int(row[facet.value]) for row in judged[query]}
            for query_id, query in ids.items()
        }
        odd, even = list(ids)[::2], list(ids)[1::2]
        folds[facet.value] = {"fold1_dev": odd, "fold2_dev": even, "fold1_test": even, "fold2_test": odd}
    write_queries(folder, topics, qrels, pools)
    write_text(folder / "folds.json", json.dumps(folds, indent=1))
    return sum(map(len, judged.values()))


FILE = "arxiv-cs.jsonl.xz"
ARXIV = f"{ARXIV_CS}/{FILE}"  # where other commands look for the papers, below QBE_DATA

SNAPSHOT = "arxiv-metadata-oai-snapshot.json"
WHERE = "kaggle.com/datasets/Cornell-University/arxiv"
CATEGORIES = ("cs.*", "stat.ML", "eess.AS", "eess.IV")
LAST_YEAR = "2019"


def write_arxiv(options: DatasetOptions, output: Path, _: Report) -> list[str]:
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


SIMILAR = 2.0  # the smallest grade of a candidate that lends a facet


def write_blended(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write graded pairs with blended candidates (``pairs.tsv``) and all their papers (``corpus.jsonl``)."""
    source, corpus = options.source, options.corpus
    if source is None or corpus is None:
        raise UsageError(
            "expected a file of graded pairs as `source`, and as `corpus` their papers with labelled "
            "sentences, as qbe tag writes them; give both"
        )
    lists = read_graded_pairs(source)
    wanted = {*lists, *(pair.paper_id for pairs in lists.values() for pair in pairs)}
    read = read_corpus([corpus], None, Reading(on_error=SKIP))
    papers = {paper.paper_id: paper for paper in read if paper.labelled and paper.paper_id in wanted}
    if missing := wanted - papers.keys():
        raise DatasetError(
            f"{corpus}: expected the {len(wanted):,} papers of {source} with labelled sentences, found "
            f"{len(missing):,} not there, such as {min(missing)}; label the papers of the pairs by qbe tag"
        )
    blended, blends = with_blends(lists, papers)
    rows = [PAIRS_HEADER]
    rows += [(q, p.paper_id, *map("{:g}".format, p.grades)) for q in blended for p in blended[q]]
    write_text(output / "pairs.tsv", "".join("\t".join(row) + "\n" for row in rows))
    write_papers(output, [*papers.values(), *blends.values()])
    return [
        f"blended: {len(blends):,} blended candidates beside {sum(map(len, lists.values())):,} pairs of "
        f"{len(lists):,} queries, {len(papers):,} papers"
    ]


def with_blends(
    lists: Mapping[str, Sequence[GradedPair]], papers: Mapping[str, Paper]
) -> tuple[dict[str, list[GradedPair]], dict[str, Paper]]:
    """Add up to three candidates to each list, one for each facet, and return them by id.

    Such a candidate has that facet, and its grade, of a candidate that is graded SIMILAR or more for it (one
    at random), and the others of random papers of other lists, graded 0: a hard negative for these. Its title
    is that of the paper with its background.
    """
    candidates = sorted({pair.paper_id for pairs in lists.values() for pair in pairs})
    lenders = {
        facet: [name for name in candidates if any(s.facet is facet for s in papers[name].sentences)]
        for facet in Facet
    }
    blended, blends = {query: list(pairs) for query, pairs in lists.items()}, dict[str, Paper]()
    for query, pairs in lists.items():
        rng = random.Random(f"0-{query}")
        listed = {query, *(pair.paper_id for pair in pairs)}
        for number, facet in enumerate(Facet):
            able = set(lenders[facet])
            similar = [pair for pair in pairs if pair.grades[number] >= SIMILAR and pair.paper_id in able]
            strangers = {
                other: [name for name in rng.sample(names, min(10, len(names))) if name not in listed]
                for other, names in lenders.items()
                if other is not facet
            }
            if not similar or not all(strangers.values()):
                continue
            chosen = rng.choice(similar)
            named = {other: names[0] for other, names in strangers.items()} | {facet: chosen.paper_id}
            parts = {each: papers[named[each]] for each in Facet}
            sentences = tuple(s for each, paper in parts.items() for s in paper.sentences if s.facet is each)
            paper_id = "+".join(paper.paper_id for paper in parts.values())
            title = parts[Facet.BACKGROUND].title
            blends[paper_id] = Paper(paper_id, title, sentences, labelled=True)
            grades = tuple(grade if place == number else 0.0 for place, grade in enumerate(chosen.grades))
            blended[query].append(GradedPair(paper_id, grades))
    return blended, blends
