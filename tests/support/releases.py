"""Small releases of test collections in their published layouts; all texts are invented."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.types import Facet


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


def contents(folder: Path) -> dict[str, bytes]:
    """The content of each file of a folder, by its path there."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
