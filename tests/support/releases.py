"""Small releases of test collections in their published layouts; all texts are invented."""

import gzip
import json
import re
from collections.abc import Iterable, Mapping
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
        (folder / f"test-pid2anns-csfcube-{facet}.json").write_text(json.dumps(pools[facet.value]))
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


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as JSON lines, compressed where the name ends with .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


RIVERS = "Rivers carry salmon. We count the salmon of {}. Counts are exact."


def write_s2orc(folder: Path) -> Path:
    """Four papers and the full text of a fifth, in S2ORC's form; the fourth has a short abstract."""
    papers = [
        {"paper_id": each, "title": f"River {each}", "abstract": RIVERS.format(each)}
        for each in ("11", "12", "13")
    ]
    papers.append({"paper_id": "14", "title": "Short", "abstract": "One sentence only."})
    write_lines(folder / "metadata/metadata_0.jsonl.gz", papers)
    text = "Counting is hard [1][2]. Weirs help [1]. Others count by sonar [1][3][4]. All agree [1][2][3][4]."
    spans = [{"start": m.start(), "end": m.end(), "ref_id": m[1]} for m in re.finditer(r"\[(.)\]", text)]
    body = {"paper_id": "20", "body_text": [{"text": text, "cite_spans": spans}]}
    links = {"bib_entries": {ref: {"link": f"1{ref}"} for ref in "1234"}}
    write_lines(folder / "pdf_parses/pdf_parses_0.jsonl", [{**body, **links}])
    return folder


def write_blendable(folder: Path) -> tuple[Path, Path]:
    """Two graded pairs and their four papers, with labelled sentences."""
    facets = [facet.value for facet in Facet]
    labels = {"pred_labels": [f"{facet}_label" for facet in facets]}
    records = (
        {"paper_id": f"p{n}", "title": f"Title {n}", "abstract": [f"{facet} {n}." for facet in facets]}
        for n in range(4)
    )
    papers = write_lines(folder / "tagged.jsonl", ({**record, **labels} for record in records))
    rows = [" ".join(["query_id paper_id", *facets]), "p0 p1 0 3 0", "p2 p3 1 0 2"]
    pairs = folder / "pairs.tsv"
    pairs.write_text("\n".join(rows).replace(" ", "\t") + "\n")
    return pairs, papers


def write_citeomatic(folder: Path, name: str) -> Path:
    """DBLP or PubMed: a query of each split cites twelve old papers; another too few; two broken records."""
    old = [{"id": f"o{n}", "title_raw": f"Old {n}", "abstract_raw": "One.", "year": 1990} for n in range(12)]
    cites = [paper["id"] for paper in old]
    years = {"train": 2005, "dev": 2008 if name == "dblp" else 2009, "test": 2011}
    young = [
        {"id": each, "title": each, "abstract": "Two.", "year": year, "out_citations": [*cites, "dev", each]}
        for each, year in years.items()
    ]
    few = {"id": "few", "title": "few", "abstract": "Two.", "year": 2005, "out_citations": cites[:9]}
    write_lines(folder / "comparison" / name / "corpus.json", [*old, *young, few, {"id": "x"}, {"id": "o1"}])
    return folder


def write_open_research(folder: Path) -> Path:
    """Twenty papers, a year each, each of which cites the one before; every other has no abstract."""
    papers = (
        {"id": f"p{n}", "title": f"Paper {n}", "paperAbstract": "" if n % 2 else "One.", "year": 1990 + n}
        | {"outCitations": [f"p{n - 1}"] if n else [], "authors": [{"name": "Ann Lee"}]}
        for n in range(20)
    )
    return write_lines(folder / "papers-2017-02-21.json.gz", papers)


def contents(folder: Path) -> dict[str, bytes]:
    """The content of each file of a folder, by its path there."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
