"""Small releases of test collections in their published layouts; all texts are invented."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Grades = Mapping[str, Mapping[str, int]]  # by candidate, by query


def papers(pools: Grades) -> dict[str, dict[str, Any]]:
    """Return a record for each query and each candidate ``{query}c{place}``, by id."""
    records = {}
    for paper_id in dict.fromkeys(name for query, pool in pools.items() for name in (query, *pool)):
        record = {"paper_id": paper_id, "title": f"Trade {paper_id}", "metadata": {"year": "1851"}}
        record |= {"abstract": [f"We ask about {paper_id}.", "Then we counted."], "topic_ids": "7"}
        records[paper_id] = record
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
    more = {"year": 1851, "authors": ["1"], "cited_by": [], "references": []}
    names = ("paper_id", "title")
    return {
        paper_id: {name: record[name] for name in names} | {"abstract": " ".join(record["abstract"])} | more
        for paper_id, record in papers(pools).items()
    }


# q1 stands in its own pool.
RELISH = {
    "q1": {"q1": 2, "q1c3": 2, "q1c1": 2, "q1c0": 1}
    | dict.fromkeys(["q1c2", "q1c4", "q1c5", "q1c6", "q1c7", "q1c8", "q2c0"], 0),
    "q2": {"q2c0": 2, "q2c1": 0, "q2c2": 2, "q2c3": 0, "q2c4": 1},
}
RELISH_SPLITS = {"dev": ["q2"], "test": ["q1", "q2", "q1"]}

TRECCOVID = {"q1": {"q1c0": 0, "q1c1": 1, "q1c2": 1, "q1c3": 0, "q1c4": 0, "q2": 0}}
TRECCOVID |= {"q2": {"q2c0": 1, "q2c1": 0}}
TRECCOVID_SPLITS = {"dev": ["q2"], "test": ["q1"]}

# "gone" is no paper of the metadata, q1c4 has no abstract, "blank" neither abstract nor title; the query
# "lost" has no text.
CITE = {"q1": {"q1c0": 0, "q1c1": 1, "gone": 1, "q1c2": 0, "q1c4": 0, "blank": 0}}
CITE |= {"lost": {"q1c0": 1, "q1c1": 0}}
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
