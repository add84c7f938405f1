"""RELISH and TRECCOVID-RF, in the layout in which ASPIRE's authors release them (Mysore et al., 2022).

``abstracts-{name}.jsonl`` holds all papers, ``test-pid2anns-{name}.json`` the judged pool of every query (of
both splits, in spite of its name; see `qbe.datasets.judgments`), ``{name}-evaluation_splits.json`` the ids of
the ``dev`` and ``test`` queries. ``{name}-queries-release.csv``, which repeats titles, is not read.
"""

from __future__ import annotations

import functools
from pathlib import Path

from qbe.datasets.judgments import Pools, read_object, read_pools
from qbe.datasets.records import Papers, read_papers
from qbe.datasets.whole import Collection, Split
from qbe.errors import DatasetError

SPLITS = ("dev", "test")


def files(name: str) -> tuple[str, str, str]:
    """Return the names of a release's files: papers, judgements, splits.

    >>> files("relish")
    ('abstracts-relish.jsonl', 'test-pid2anns-relish.json', 'relish-evaluation_splits.json')
    """
    return f"abstracts-{name}.jsonl", f"test-pid2anns-{name}.json", f"{name}-evaluation_splits.json"


def read_release(name: str, highest: int, source: Path) -> tuple[Papers, list[Split]]:
    """Read the papers and splits (``dev``, ``test``) of a release; a query may be in both splits.

    Args:
        name: ``relish`` or ``treccovid``.
        highest: the highest grade.
        source: the folder of the release.

    Raises CorpusError for papers, and DatasetError for judgements or splits, that do not have the form of
    the release or name papers that are missing in it.

    >>> _ = Path("abstracts-relish.jsonl").write_text('''{"paper_id": "a", "title": "On stone"}
    ... {"paper_id": "b", "title": "On sand"}''')
    >>> _ = Path("test-pid2anns-relish.json").write_text('{"a": {"cands": ["b"], "relevance_adju": [2]}}')
    >>> _ = Path("relish-evaluation_splits.json").write_text('{"dev": ["a"], "test": ["a"]}')
    >>> papers, (dev, test) = read_release("relish", 2, Path())
    >>> papers.title_only, dev
    (2, Split(name='dev', pools={'a': {'b': 2}}))
    """
    abstracts, judgments, splits = files(name)
    papers = read_papers(source / abstracts)
    pools = read_pools(source / judgments, papers.ids | papers.without_text, abstracts, highest)
    return papers, _read_splits(source / splits, pools)


def _read_splits(path: Path, pools: Pools) -> list[Split]:
    content = read_object(path)
    splits = []
    for name in SPLITS:
        ids = content.get(name)
        if not isinstance(ids, list) or not ids:
            raise DatasetError(
                f"{path}: expected a list of query ids as {name}, found {ascii(ids)[:60]}; take the file of "
                "the release"
            )
        unknown = [query for query in ids if not isinstance(query, str) or query not in pools]
        if unknown:
            raise DatasetError(
                f"{path}: expected judged queries as {name}, found {ascii(unknown[0])[:60]}; take all "
                "files from one release"
            )
        # RELISH lists a query twice whose paper two people judged; its scorer counts it once.
        splits.append(Split(name, {query: pools[query] for query in ids}))
    return splits


RELISH = Collection(
    "relish",
    files("relish"),
    "https://figshare.com/articles/dataset/RELISH-Aspire/19425506",
    functools.partial(read_release, "relish", 2),
)
"""Biomedical abstracts, each with about 60 judged ones, mostly by its own author (Brown et al., 2019).

Of the two public layouts this is ASPIRE's, with the texts, and the splits of published figures. The
original, ``RELISH_v1.json``, has PubMed ids only. Grades: 2 relevant, 1 partially relevant, 0 irrelevant.
For MAP only 2 counts as relevant.
"""

TRECCOVID = Collection(
    "treccovid",
    files("treccovid"),
    "https://figshare.com/articles/dataset/TRECCOVID-RF-Aspire/19425515",
    functools.partial(read_release, "treccovid", 1),
)
"""Papers on COVID-19: relevant to a query paper are those relevant to the same topic of TREC-COVID.

ASPIRE's authors derived it from TREC-COVID's judgements (Voorhees et al., 2020), whose topics are texts
without query papers. They drew the queries at random, so that only the released files have those of
published figures. Grades: 1 for a paper that TREC judged relevant (not partially) to the query paper's topic,
0 for every other paper of the collection: each query's pool is the whole collection, about 10,000 papers.
"""
