"""People's judgements outside CSFCube: of reviewers, in systematic reviews, CISI, and headings by authors.

Each is read from its public release, which is downloaded file by file (``people.json`` has addresses and
digests), or from a folder as ``$QBE_DATA/people`` has them. Abstracts belong to their publishers.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import parse_paper
from qbe.corpus.sentences import split_sentences, unsplit
from qbe.datasets import releases
from qbe.datasets.releases import DatasetOptions, Report, read_object, write_papers, write_queries
from qbe.errors import DatasetError
from qbe.query import Topic, TopicAspect
from qbe.runs import Qrels, read_qrels
from qbe.types import Facet, Paper

STEPS = 4  # of a quarter, in a point of a researcher's score; a grade counts them
SHORTEST = 200  # characters of an abstract in a review: shorter ones are notices
WITH_HEADINGS = ("Bannach-Brown_2019", "Kitchenham_2010")  # reviews

Papers = dict[str, Paper]


class Judged(NamedTuple):
    """Papers by id, topics, judgements and pools by query id, and lines that summarize parts."""

    papers: Papers
    topics: Sequence[Topic]
    qrels: Qrels
    pools: Mapping[str, Iterable[str]]
    parts: Sequence[str] = ()


def write(name: str, options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Write one of READERS: the source, else what $QBE_DATA has, else the release, downloaded."""
    read, release, wanted = READERS[name]
    url, files = released(release)
    digests = {path: f"git:{files[path]}" for path in files if re.search(wanted, path)}
    folder = releases.find_or_download(f"people/{release}", options.source, url, digests, report)
    take = "take all files from one release"
    try:
        judged = read(folder)
    except (LookupError, TypeError, ValueError, AttributeError, OSError, csv.Error) as error:
        expected = f"the files of {name} as they were released"
        raise DatasetError(
            f"{folder}: expected {expected}, found {type(error).__name__}: {error}; {take}"
        ) from error
    named = {*judged.qrels, *(paper_id for grades in judged.qrels.values() for paper_id in grades)}
    named = {aspect.paper_id for topic in judged.topics for aspect in topic.resolved_aspects()} | named
    if unknown := sorted(named - judged.papers.keys() - {topic.query_id for topic in judged.topics}):
        raise DatasetError(f"{folder}: expected a text of each paper, found none of {unknown[0]}; {take}")
    write_papers(output, judged.papers.values())
    count = sum(map(len, judged.qrels.values()))
    said = f", {len(judged.topics)} queries, {count:,} judgements" if judged.topics else ""
    if judged.topics:
        write_queries(output, judged.topics, {f"{name}.qrels": judged.qrels}, judged.pools)
    return [f"{name}: {len(judged.papers):,} papers{said} from {folder}", *judged.parts]


def released(name: str) -> tuple[str, dict[str, str]]:
    """Return the address of a release, and the ids that git has for its files, by path."""
    content = json.loads(resources.files(__package__).joinpath("people.json").read_text(encoding="utf-8"))
    return content[name]["url"], content[name]["files"]


def _papers(path: Path) -> Papers:
    return {paper.paper_id: paper for paper in read_corpus([str(path)], unsplit)}


def _paper(paper_id: str, title: str, abstract: str | Sequence[str], labels: Any = None) -> Paper:
    record = {"paper_id": paper_id, "title": title, "abstract": abstract, "pred_labels": labels}
    return parse_paper(record, paper_id, unsplit)


def _table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    text = io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")
    return list(csv.DictReader(text, delimiter=delimiter))


def _reviewers(folder: Path) -> Judged:
    """Read the scores of Stelmakh et al. (2023): a researcher's own papers are a query, in ten samples."""
    if (folder / "scores.json").is_file():
        content, papers = read_object(folder / "scores.json"), _papers(folder / "papers.jsonl.xz")
        scores, samples = content["ref"], content["arch"]
    else:
        papers, scores, samples = _released_scores(folder)
    topics, qrels = list[Topic](), dict[str, dict[str, int]]()
    for researcher, of_researcher in scores.items():
        for sample in samples:  # most are equal, and are then ranked once
            query, own = f"{sample}.{researcher}", sorted(samples[sample][researcher])
            topics.append(Topic(query, own[0], None, tuple(map(TopicAspect, own))))
            qrels[query] = {each: int(STEPS * score) for each, score in of_researcher.items()}
    parts = [f"  {len(samples)} samples of the papers of {len(scores)} researchers"]
    return Judged(papers, topics, qrels, qrels, parts)


def _released_scores(folder: Path) -> tuple[Papers, Any, Any]:
    """Read papers, scores by researcher, and ids of researchers' papers by sample."""
    places, scores = range(1, 11), dict[str, dict[str, float]]()
    for row in _table(folder / "data" / "evaluations.csv", "\t"):
        scores[row["ParticipantID"]] = {
            row[f"Paper{n}"]: float(row[f"Expertise{n}"]) for n in places if row.get(f"Paper{n}")
        }
    sets, samples = folder / "evaluation_datasets", dict[str, dict[str, list[str]]]()
    records = read_object(sets / "d_20_1" / "submissions.json")
    for sample in map(str, places):
        samples[sample] = {}
        for researcher in scores:
            path = sets / f"d_20_{sample}" / "archives" / f"~{researcher}.jsonl"
            own = {each["id"]: each for each in map(json.loads, path.read_text("utf-8").splitlines())}
            samples[sample][researcher] = list(own)
            records |= own
    texts = {name: record["content"] for name, record in records.items()}
    return {name: _paper(name, of["title"], of["abstract"]) for name, of in texts.items()}, scores, samples


def _reviews(folder: Path) -> Judged:
    """Read ten systematic reviews: an included paper is a query, its review the pool, a level the grade."""
    every, topics, parts = Papers(), list[Topic](), list[str]()
    pools, qrels = dict[str, list[str]](), dict[str, dict[str, int]]()
    for path in released("reviews")[1]:
        papers, levels = _review(folder, path)
        included = [paper_id for paper_id in papers if levels.get(paper_id) == 2]
        every |= papers
        for query in included:
            topics.append(Topic(query, query))
            pools[query] = [each for each in papers if each != query]
            qrels[query] = {each: levels[each] for each in pools[query] if each in levels}
        parts.append(
            f"  {Path(path).stem}: {len(papers):,} papers, {len(levels)} kept, {len(included)} included"
        )
    return Judged(every, topics, qrels, pools, parts)


def _review(folder: Path, path: str) -> tuple[Papers, dict[str, int]]:
    """Read papers of a review, and the level of those that people kept (1, by abstract) or included (2)."""
    name, levels, papers = Path(path).stem, dict[str, int](), Papers()
    if (folder / f"{name}.jsonl.xz").is_file():
        rows = _table(folder / f"{name}.included.tsv", "\t")
        return _papers(folder / f"{name}.jsonl.xz"), {row["paper_id"]: int(row["level"]) for row in rows}
    for number, row in enumerate(_table(folder / path)):
        paper_id, abstract = f"{name}-{number}", " ".join(row["abstract"].split())
        if len(abstract) >= SHORTEST:
            papers[paper_id] = _paper(paper_id, row["title"], abstract)
            if "1" in (row["label_included"], row.get("label_abstract_screening")):
                levels[paper_id] = 1 + (row["label_included"] == "1")
    return papers, levels


def _cisi(folder: Path) -> Judged:
    """Read every other one of CISI's judged queries that are whole abstracts; all its papers are the pool."""
    if (folder / "dev.qrels").is_file():
        papers, qrels = _papers(folder / "papers.jsonl.xz"), read_qrels(folder / "dev.qrels")
    else:
        papers, queries = _marked(folder / "CISI.ALL", "d"), _marked(folder / "CISI.QRY", "q")
        judged: dict[str, dict[str, int]] = {}
        for line in (folder / "CISI.REL").read_text("utf-8").splitlines():
            query, paper_id, *_ = line.split()
            judged.setdefault(f"q{query}", {})[f"d{paper_id}"] = 1
        chosen = [query for query in queries if queries[query].title and query in judged][::2]
        qrels = {query: judged[query] for query in chosen}
        papers |= {query: queries[query] for query in chosen}
    pool = [paper_id for paper_id in papers if paper_id not in qrels]
    return Judged(papers, [Topic(query, query) for query in qrels], qrels, dict.fromkeys(qrels, pool))


def _marked(path: Path, letter: str) -> Papers:
    """Read entries of SMART's format: ``.I 7``, then ``.T``, ``.A``, ``.W`` and others before their lines."""
    papers = Papers()
    for entry in re.split(r"^\.I ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        number, *parts = re.split(r"^\.([A-Z])\s", entry, flags=re.MULTILINE)
        fields = dict(zip(parts[::2], parts[1::2], strict=True))
        paper_id = letter + number.strip()
        papers[paper_id] = _paper(paper_id, fields.get("T", ""), " ".join(fields["W"].split()))
    return papers


_WORDS = {
    "background": r"background(?: and (?:aims?|objectives?))?|introduction|objectives?|aims?|purpose",
    "method": r"methods?|materials? and methods?|(?:study )?design",
    "result": r"results?|key findings",
    "other": r"conclusions?|discussion",
}
_HEADING = re.compile(
    rf"(?<!\S)(?=[A-Z])(?:{'|'.join(f'(?P<{name}>(?i:{words}))' for name, words in _WORDS.items())}):\s*"
)


def _headings(folder: Path) -> Judged:
    """Read the abstracts of two reviews with a heading for each facet, which label the sentences below."""
    papers = Papers()
    for path in released("reviews")[1]:
        for paper in _review(folder, path)[0].values() if Path(path).stem in WITH_HEADINGS else ():
            found = list(_HEADING.finditer(text := paper.abstract))
            if not found or found[0].start() or not {*map(str, Facet)} <= {each.lastgroup for each in found}:
                continue
            ends = [*(each.start() for each in found[1:]), len(text)]
            labelled = [
                (f"{each.lastgroup}_label", sentence)
                for each, end in zip(found, ends, strict=True)
                for sentence in split_sentences(text[each.end() : end].strip())
            ]
            labels, sentences = zip(*labelled, strict=True)
            papers[paper.paper_id] = _paper(paper.paper_id, paper.title, list(sentences), list(labels))
    count = sum(len(paper.sentences) for paper in papers.values())
    return Judged(papers, (), {}, {}, [f"  {count:,} sentences"])


# What reads a data set, its release in people.json, and the files of it that are needed.
READERS: Mapping[str, tuple[Callable[[Path], Judged], str, str]] = {
    "reviewers": (_reviewers, "reviewers", ""),
    "reviews": (_reviews, "reviews", ""),
    "cisi": (_cisi, "cisi", ""),
    "headings": (_headings, "reviews", "|".join(WITH_HEADINGS)),
}
WRITERS = {name: partial(write, name) for name in READERS}
