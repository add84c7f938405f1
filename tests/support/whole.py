"""Small releases of test collections in their published layouts; all texts are invented.

Ranks of RELISH, TRECCOVID-RF and SciDocs follow from the words. A query's abstract names eight trades; the
abstract of candidate ``i`` repeats all but ``i`` of them, with as many words in all, so that BM25 ranks
candidate 0 first, then 1, and so on.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qbe.types import Facet

TRADES = {
    "q1": ["potters", "weavers", "tanners", "coopers", "smiths", "dyers", "masons", "millers"],
    "q2": ["bakers", "brewers", "butchers", "grocers", "chandlers", "drapers", "hatters", "tailors"],
}

Grades = Mapping[str, Mapping[str, int]]
"""Grades by candidate, by query."""


def words(query: str, place: int) -> str:
    """Return an abstract that shares all but ``place`` trades with that of a query."""
    shared = TRADES[query][place:]
    return " ".join(["Here", "worked", *shared, *(f"{query}x{place}x{i}" for i in range(place))]) + "."


def papers(pools: Grades) -> dict[str, dict[str, Any]]:
    """Return a record for each query and each candidate ``{query}c{place}``, by id."""
    records = {}
    for paper_id in dict.fromkeys(name for query, pool in pools.items() for name in (query, *pool)):
        query, _, place = paper_id.partition("c")
        records[paper_id] = {
            "paper_id": paper_id,
            "title": f"Trade {paper_id}",
            "abstract": [words(query, int(place or 0)), "Then we counted."],
            "metadata": {"year": "1851"},
            "topic_ids": "7",
        }
    return records


def write_aspire(
    folder: Path,
    name: str,
    pools: Grades,
    splits: Mapping[str, Iterable[str]],
    records: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write a release in the layout of ASPIRE's authors; ``records`` are those of ``pools`` by default."""
    folder.mkdir(parents=True, exist_ok=True)
    records = papers(pools) if records is None else records
    lines = "".join(json.dumps(record) + "\n" for record in records.values())
    (folder / f"abstracts-{name}.jsonl").write_text(lines)
    judged = {q: {"cands": list(pool), "relevance_adju": list(pool.values())} for q, pool in pools.items()}
    (folder / f"test-pid2anns-{name}.json").write_text(json.dumps(judged))
    (folder / f"{name}-evaluation_splits.json").write_text(json.dumps(dict(splits)))
    (folder / f"{name}-queries-release.csv").write_text("paper_id,title\nq1,Trade q1\n")
    return folder


def write_scidocs(
    folder: Path, pools: Mapping[str, Grades], records: Mapping[str, Mapping[str, Any]]
) -> Path:
    """Write a release in the layout of SciDocs' repository; ``pools`` are by ``{task}/{split}``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper_metadata_view_cite_read.json").write_text(json.dumps(records))
    for name, judged in pools.items():
        path = folder / f"{name}.qrel"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{q} 0 {d} {g}\n" for q, pool in judged.items() for d, g in pool.items()))
    return folder


def scidocs_records(pools: Grades) -> dict[str, dict[str, Any]]:
    """Return the records of `papers` as in SciDocs: an abstract is one string, the year is a field."""
    return {
        paper_id: {
            "paper_id": paper_id,
            "title": record["title"],
            "abstract": " ".join(record["abstract"]),
            "year": 1851,
            "authors": ["1"],
            "cited_by": [],
            "references": [],
        }
        for paper_id, record in papers(pools).items()
    }


# Candidate i of a query comes i-th, see support.whole. q1 stands in its own pool.
RELISH = {
    "q1": {"q1": 2, "q1c3": 2, "q1c1": 2, "q1c0": 1}
    | dict.fromkeys(["q1c2", "q1c4", "q1c5"], 0)
    | dict.fromkeys(["q1c6", "q1c7", "q1c8", "q2c0"], 0),
    "q2": {"q2c0": 2, "q2c1": 0, "q2c2": 2, "q2c3": 0, "q2c4": 1},
}
RELISH_SPLITS = {"dev": ["q2"], "test": ["q1", "q2", "q1"]}

TRECCOVID = {
    "q1": {"q1c0": 0, "q1c1": 1, "q1c2": 1, "q1c3": 0, "q1c4": 0, "q2": 0},
    "q2": {"q2c0": 1, "q2c1": 0},
}
TRECCOVID_SPLITS = {"dev": ["q2"], "test": ["q1"]}

# "gone" is no paper of the metadata, q1c4 has no abstract, "blank" neither abstract nor title; the query
# "lost" has no text.
CITE = {
    "q1": {"q1c0": 0, "q1c1": 1, "gone": 1, "q1c2": 0, "q1c4": 0, "blank": 0},
    "lost": {"q1c0": 1, "q1c1": 0},
}
OTHER = {"q2": {"q2c0": 1, "q2c1": 0}}
SCIDOCS = {
    f"{task}/{split}": CITE if (task, split) == ("cite", "test") else OTHER
    for task in ("cite", "cocite", "coview", "coread")
    for split in ("val", "test")
}


def write_relish(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """Write RELISH, with changes to the records of some papers, or a record again under another key."""
    records = papers(RELISH)
    for key, change in (changes or {}).items():
        records[key] = records[change] if isinstance(change, str) else {**records[key], **change}
    return write_aspire(folder, "relish", RELISH, RELISH_SPLITS, records)


def write_treccovid(folder: Path) -> Path:
    """Write TRECCOVID-RF."""
    return write_aspire(folder, "treccovid", TRECCOVID, TRECCOVID_SPLITS)


def write_small_scidocs(folder: Path) -> Path:
    records = scidocs_records({"q1": dict.fromkeys(["q1c0", "q1c1", "q1c2", "q1c4"], 0), **OTHER})
    records["q1c4"]["abstract"] = None
    records["blank"] = {"paper_id": "blank", "title": None, "abstract": " "}
    return write_scidocs(folder, SCIDOCS, records)


def csfcube_paper(paper_id: str, *labels: str) -> dict[str, Any]:
    return {
        "paper_id": paper_id,
        "metadata": {"authors": [{"first": "A", "middle": [], "last": "B"}], "year": "1999"},
        "title": f"On stone {paper_id}",
        "abstract": [f"Sentence {i} of stone {paper_id}." for i in range(len(labels))],
        "pred_labels_truncated": False,
        "pred_labels": [f"{label}_label" for label in labels],
    }


CSFCUBE_PAPERS = [
    csfcube_paper("1", "objective", "method", "result"),
    csfcube_paper("2", "background", "other"),
    csfcube_paper("3", "method", "result"),
    csfcube_paper("4", "other"),
]
CSFCUBE_POOLS: dict[str, dict[str, dict[str, Any]]] = {
    "background": {"2": {"cands": ["3", "2", "1"], "relevance_adju": [0, 3, 2], "relevance_max": [1, 3, 3]}},
    "method": {
        "3": {"cands": ["1"], "relevance_adju": [1]},
        "1": {"cands": ["4", "3"], "relevance_adju": [0, 2]},
    },
    "result": {"2": {"cands": ["1"], "relevance_adju": [3]}},
}
CSFCUBE_FOLDS = {
    "background": {"fold1_dev": ["2_background"], "fold2_test": ["2_background"]},
    "method": {"fold1_dev": ["3_method"], "fold2_dev": ["1_method"]},
    "result": {"fold1_dev": ["2_result"]},
}


def write_csfcube(
    folder: Path, *, papers: Any = CSFCUBE_PAPERS, pools: Any = CSFCUBE_POOLS, folds: Any = CSFCUBE_FOLDS
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in papers)
    (folder / "abstracts-csfcube-preds.jsonl").write_text(lines)
    for facet in Facet:
        path = folder / f"test-pid2anns-csfcube-{facet}.json"
        path.write_text(json.dumps(pools[facet.value]))
    (folder / "evaluation_splits.json").write_text(json.dumps(folds))
    return folder


CITATION_PAPERS: dict[str, dict[str, Any]] = {
    "10.1/a": {
        "title": "Potters",
        "abstract": "We count potters. There are six.",
        "metadata": {"year": 1990},
    },
    "10.1/b": {"title": "Weavers", "abstract": "Weavers follow potters.", "metadata": {"year": 2018}},
    "10.1/c": {"title": "Tanners", "abstract": "We count all who tan.", "metadata": {"year": 2018}},
    "10.1/d": {"title": "Coopers", "abstract": "Coopers come last.", "metadata": {"year": 2020}},
}
CITATIONS = {
    "train": "10.1/b 0 10.1/a 1\n10.1/c 0 10.1/b 1\n10.1/c 0 10.1/a 1\n",
    "dev": "10.1/d 0 10.1/c 1\n",
}


def write_records(path: Path, records: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write records by id as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"paper_id": paper_id, **record}) for paper_id, record in records.items())
    path.write_text("\n".join(lines))
    return path


def write_citations(
    folder: Path,
    train: str = CITATIONS["train"],
    dev: str = CITATIONS["dev"],
    papers: Mapping[str, Any] | None = None,
) -> Path:
    """Write the papers on visualization, with changes."""
    write_records(folder / "papers.jsonl", {**CITATION_PAPERS, **(papers or {})})
    (folder / "train.qrels").write_text(train)
    (folder / "dev.qrels").write_text(dev)
    return folder
