"""The layout in which ASPIRE's authors release collections of whole-abstract queries (Mysore et al., 2022).

``abstracts-{name}.jsonl`` holds all papers, ``test-pid2anns-{name}.json`` the judged pool of every query (of
both splits, in spite of its name; see `qbe.datasets.judgments`), ``{name}-evaluation_splits.json`` the ids of
the ``dev`` and ``test`` queries. ``{name}-queries-release.csv``, which repeats titles, is not read.
"""

from __future__ import annotations

from pathlib import Path

from qbe.datasets.judgments import Pools, read_object, read_pools
from qbe.datasets.whole import Papers, Split, read_papers
from qbe.errors import DatasetError

SPLITS = ("dev", "test")


def files(name: str) -> tuple[str, str, str]:
    """The files of a release that are read: papers, judgements, splits."""
    return f"abstracts-{name}.jsonl", f"test-pid2anns-{name}.json", f"{name}-evaluation_splits.json"


def read_release(name: str, source: Path, highest: int) -> tuple[Papers, list[Split]]:
    """The papers and splits of a release; ``highest`` is its highest grade.

    A query may be in both splits, and stands once in each. Raises CorpusError for unfit papers, DatasetError
    for judgements or splits that do not follow the form or name papers that the release lacks.
    """
    abstracts, judgments, splits = files(name)
    papers = read_papers(source / abstracts)
    pools = read_pools(source / judgments, papers.ids | papers.without_text, abstracts, highest)
    return papers, _read_splits(source / splits, pools)


def _read_splits(path: Path, pools: Pools) -> list[Split]:
    content = read_object(path)
    found = []
    for name in SPLITS:
        ids = content.get(name)
        if not isinstance(ids, list) or not ids:
            raise DatasetError(
                f"{path}: expected a list of query ids as {name}, found {ascii(ids)[:60]}; take the file of "
                "the release"
            )
        strangers = [query for query in ids if not isinstance(query, str) or query not in pools]
        if strangers:
            raise DatasetError(
                f"{path}: expected judged queries as {name}, found {ascii(strangers[0])[:60]}; take all "
                "files from one release"
            )
        # RELISH lists a query twice whose paper was judged by two people; its scorer counts it once.
        found.append(Split(name, {query: pools[query] for query in ids}))
    return found
