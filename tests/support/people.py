"""Small releases of people's judgements and of other collections in their layouts; all texts are invented."""

import json
from pathlib import Path

from qbe.datasets.people import released

SCORES = (
    "ParticipantID\tPaper1\tPaper2\tPaper3\tExpertise1\tExpertise2\tExpertise3\n7\ts1\ts2\t\t5.0\t2.25\t\n"
)
WITH_HEADINGS = (
    "BACKGROUND: Looms break. Weavers wait. MATERIALS AND METHODS: We count looms by e.g. hand. Results: "
    "Six broke. CONCLUSION: Buy looms. " + "They are needed in all of the towns that we know of. " * 3
).strip()
CISI = {
    "CISI.ALL": ".I 1\n.T\nShelves\n.A\nBo, A.\n.W\n   We count\nshelves.\n.X\n1\t5\t1\n"
    ".I 2\n.T\nCards\n.W\nCards age.\n",
    "CISI.QRY": "".join(
        f".I {number}\n.T\nOn {number}\n.W\nWe ask {number} things.\n.B\n(J.)\n" for number in (3, 4, 5, 6)
    )
    + ".I 7\n.W\nHow many?\n",
    "CISI.REL": "     3     1\t0\t0.0\n     4     1\t0\t0.0\n     5     2\t0\t0.0\n     7     1\t0\t0.0\n",
}


def _write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _contents(name: str) -> dict[str, object]:
    return {"id": name, "content": {"title": f"On {name}", "abstract": f"We read {name}."}}


def write_reviewers(folder: Path) -> Path:
    """A researcher who scored two papers, and has two of three own ones in each sample."""
    sets = "evaluation_datasets/d_20_"
    files = {"data/evaluations.csv": SCORES}
    files[f"{sets}1/submissions.json"] = json.dumps({name: _contents(name) for name in ("s1", "s2")})
    for sample in range(1, 11):
        lines = (json.dumps(_contents(name)) + "\n" for name in ("o1", f"o{2 + sample % 2}"))
        files[f"{sets}{sample}/archives/~7.jsonl"] = "".join(lines)
    return _write(folder, files)


def write_reviews(folder: Path) -> Path:
    """Ten reviews, each of two included papers, another one, and a notice; two have headings in one."""
    files = {}
    for path in released("reviews")[1]:
        text = "We give it to many people, and see what happens to them. " * 5
        head, screened = (",label_abstract_screening", ",1") if "Cohen" in path else ("", "")
        rows = [("One", WITH_HEADINGS, 1), ("Two", text, 0), ("A\nthird", text, 1), ("Notice", "Short.", 1)]
        lines = [f'"{title}","{abstract}",{kept}{screened}\n' for title, abstract, kept in rows]
        files[path] = "".join([f"title,abstract,label_included{head}\n", *lines])
    return _write(folder, files)


def write_cisi(folder: Path) -> Path:
    """Two papers, and three judged queries that are abstracts, of which the first and third count."""
    return _write(folder, CISI)


def write_beir(folder: Path) -> Path:
    papers = [("d1", "Looms", "They break."), ("d2", "Sheep", ""), ("d3", "", " ")]
    lines = (json.dumps({"_id": key, "title": title, "text": text}) + "\n" for key, title, text in papers)
    queries = (json.dumps({"_id": f"q{n}", "text": f"what\n breaks {n}?"}) + "\n" for n in range(3))
    files = {"corpus.jsonl": "".join(lines), "queries.jsonl": "".join(queries)}
    files["qrels/dev.tsv"] = "query-id\tcorpus-id\tscore\nq0\td1\t1\nq0\td3\t1\nq0\td4\t1\n"
    files["qrels/test.tsv"] = "q1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"
    return _write(folder, files)


def tiny_irds(folder: Path) -> str:
    """Register a collection of files with ir_datasets, and return its name."""
    import ir_datasets

    files = {"docs.tsv": "a\tThey break.\nb\tThey hold.\n", "queries.tsv": "1\tlooms\n2\tsheep\n"}
    files["qrels"] = "1 0 a 1\n"
    _write(folder, files)
    dataset = ir_datasets.create_dataset(*(str(folder / name) for name in files))
    name = f"qbe-{folder.parent.name}"
    ir_datasets.registry.register(name, dataset)
    return name
