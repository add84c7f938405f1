"""Collections of others: CSFCube, judged pools of whole abstracts, ir_datasets, BEIR, and Citeomatic's.

RELISH (Brown et al., 2019) and TRECCOVID-RF (Voorhees et al., 2020) come as ASPIRE's authors release them
(Mysore et al., 2022); in TRECCOVID-RF each pool is the whole collection. SciDocs (Cohan et al., 2020) comes
as its repository's instructions fetch it; its scorer counts papers without text, which stay in the
judgements. A query paper is left out of its own pool: CSFCube's release (Mysore et al., 2021) has 8781666 in
its own pools with the highest grade, and the published figures are computed without it. Of ir_datasets and
BEIR documents become a corpus and queries topics that are texts; the title stands in for an abstract.

DBLP, PubMed and Open Research (Bhagavatula et al., 2018) are the files that ``get-data.sh`` of
github.com/allenai/citeomatic fetches. As in Citeomatic's code and Nogueira et al. (2020), papers without a
year and citations of younger ones are left out. DBLP and PubMed are split at fixed years; only papers of
train are relevant, and a query has at least ten citations. Open Research is 80, 10 and 10 of a hundred papers
in the order of their years; its 20,000 queries a split are not those of the published figures, which were
drawn at random.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.json_formats import read_records
from qbe.corpus.json_stream import json_objects
from qbe.corpus.reading import read_corpus
from qbe.corpus.records import FIELDS, RejectedRecords, dump_record, parse_paper
from qbe.corpus.sentences import unsplit
from qbe.corpus.streams import display_name, open_source
from qbe.datasets import citations, releases
from qbe.datasets.releases import DatasetOptions, Pools, Report, read_pools, write_papers, write_queries
from qbe.errors import CorpusError, DatasetError, RecordError, UsageError, check_package
from qbe.query import Topic
from qbe.runs import Qrels, read_qrels
from qbe.types import Facet, Paper
from qbe.util.files import StrPath, atomic_file, sha256
from qbe.util.text import bad_line, read_fields
from qbe.util.web import matches

# Release v1.1 of November 2021, which has evaluation scripts.
COMMIT = "7ffe012c1d92c470f185fc086086caf5b8e05ef3"
WHERE = "https://github.com/iesl/CSFCube"
BASE_URL = f"https://raw.githubusercontent.com/iesl/CSFCube/{COMMIT}/"

JUDGMENTS = {facet: f"test-pid2anns-csfcube-{facet}.json" for facet in Facet}
ABSTRACTS = "abstracts-csfcube-preds.jsonl"
FOLDS = "evaluation_splits.json"


# The file's id in the commit; the other digests are SHA-256 of the files.
DIGESTS: Mapping[str, str] = {
    ABSTRACTS: "git:ec4598cfed007d05701083f967813e311b28a9dc",
    JUDGMENTS[Facet.BACKGROUND]: "sha256:2015cbf965377374e020b0ec133351ec1feb731b9a9c40da0e446ef6eee4fa5e",
    JUDGMENTS[Facet.METHOD]: "sha256:4d9b48f4b6a7a4fc24a30e0c0e74d1cc53eb4214ec4b855e3cd98e86829323a2",
    JUDGMENTS[Facet.RESULT]: "sha256:5ed7a63bc20e3deb725f8ec82abfcb1c5d79673befc942509b48effceb3be031",
    FOLDS: "sha256:1d23a1b2110e874809c9516f65c70e3c6e4b8fe3bd748ff36ff05c4875226c88",
}


def find_csfcube(source: StrPath | None, report: Report = lambda _: None) -> Path:
    """Return the folder ``source``, else ``$QBE_DATA/csfcube``, else a download, which is reported."""
    folder = releases.find_or_download("csfcube", source, BASE_URL, DIGESTS, report)
    return releases.find_release("csfcube", DIGESTS, WHERE, folder)


def write_csfcube(options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Find or download the release, and write it to a folder; return a summary."""
    return convert_csfcube(find_csfcube(options.source, report), output, raw=options.raw)


def convert_csfcube(source: Path, output: Path, *, raw: bool = False) -> list[str]:
    """Write a release to a folder, and return lines that summarize it."""
    papers = {paper.paper_id: paper for paper in read_corpus([str(source / ABSTRACTS)])}
    facets = {facet: read_pools(source / JUDGMENTS[facet], papers, ABSTRACTS) for facet in Facet}
    topics = [Topic(f"{query}_{facet}", query, facet) for facet, pools in facets.items() for query in pools]
    pools = {topic.query_id: facets[topic.facet][topic.paper_id] for topic in topics if topic.facet}
    in_own_pool = [t.query_id for t in topics if pools[t.query_id].pop(t.paper_id, None) is not None]
    folds = (source / FOLDS).read_bytes()

    with atomic_file(output / "corpus.jsonl") as stream:
        for _, record in read_records(source / ABSTRACTS):
            kept = {field: record[field] for field in FIELDS if field in record}
            stream.write(dump_record(releases.raw_record(kept) if raw else kept))
    qrels = {
        f"csfcube.{facet}.qrels": {t.query_id: pools[t.query_id] for t in topics if t.facet is facet}
        for facet in facets
    }
    write_queries(output, topics, qrels, pools)
    with atomic_file(output / "folds.json") as stream:
        stream.write(folds)

    queries = ", ".join(f"{len(of_facet)} {facet}" for facet, of_facet in facets.items())
    sentences = sum(len(paper.sentences) for paper in papers.values())
    lines = [
        f"csfcube: {len(papers):,} papers ({sentences:,} sentences) from {source}",
        f"  {len(topics)} queries ({queries}), {sum(map(len, pools.values())):,} judgements",
    ]
    if in_own_pool:
        lines.append(f"  left out of its own pool: {', '.join(in_own_pool)}")
    no_sentence = [t.query_id for t in topics if not papers[t.paper_id].positions(t.facet)]
    lines.append(f"  queries without a sentence of their facet: {', '.join(no_sentence) or 'none'}")
    return lines + [
        f"  {name} differs from the release's file, its form was checked (sha256 {sha256(source / name)})"
        for name, digest in DIGESTS.items()
        if not matches(source / name, digest)
    ]


SCIDOCS_SPLITS = tuple(
    f"{task}/{split}" for task in ("cite", "cocite", "coview", "coread") for split in ("val", "test")
)


class Papers(NamedTuple):
    """Ids of papers with a text, of those with a title only, and of those without any text."""

    ids: set[str]
    title_only: set[str]
    without_text: set[str]


class Release(NamedTuple):
    """The files of a release, and where to get it."""

    papers: str
    judgments: Sequence[str]
    where: str


RELEASES = {
    name: Release(
        f"abstracts-{name}.jsonl",
        (f"test-pid2anns-{name}.json", f"{name}-evaluation_splits.json"),
        f"https://figshare.com/articles/dataset/{number}",
    )
    for name, number in (("relish", 19425506), ("treccovid", 19425515))
}
RELEASES["scidocs"] = Release(
    "paper_metadata_view_cite_read.json",
    tuple(f"{split}.qrel" for split in SCIDOCS_SPLITS),
    "https://github.com/allenai/scidocs (aws s3 sync ...)",
)


def _read_splits(name: str, source: Path, papers: Papers) -> dict[str, Pools]:
    """Read the splits of one of RELEASES by name; in RELISH and TRECCOVID-RF a query may be in both."""
    if name == "scidocs":
        return {split.replace("/", "."): read_qrels(source / f"{split}.qrel") for split in SCIDOCS_SPLITS}
    judgments, splits_file = (source / file for file in RELEASES[name].judgments)
    pools = read_pools(judgments, papers.ids | papers.without_text, RELEASES[name].papers)
    content = releases.read_object(splits_file)
    try:
        # RELISH lists a query twice whose paper two people judged; its scorer counts it once.
        return {split: {query: pools[query] for query in content[split]} for split in ("dev", "test")}
    except (KeyError, TypeError) as error:
        expected = "expected lists of judged queries as dev and test"
        raise DatasetError(
            f"{splits_file}: {expected}, found {error}; take all files from one release"
        ) from error


def write_judged(name: str, options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write a collection of RELEASES to a folder; return lines that summarize it."""
    release = RELEASES[name]
    folder = releases.find_release(name, (release.papers, *release.judgments), release.where, options.source)
    papers = _write_corpus(folder / release.papers, output / "corpus.jsonl", options.raw)
    lines = [
        f"{name}: {len(papers.ids):,} papers ({len(papers.title_only):,} with a title only) from {folder}"
    ]
    if papers.without_text:
        lines.append(f"  papers without text, left out: {_some(sorted(papers.without_text))}")
    for split, pools in _read_splits(name, folder, papers).items():
        lines += _write_pools(output, f"{name}.{split}.qrels", split, pools, papers.ids)
    return lines


def _write_corpus(source: Path, target: Path, raw: bool) -> Papers:
    """Write the papers that have a text; the title stands for an empty abstract, as in SciDocs' scorer."""
    papers = Papers(set(), set(), set())
    with atomic_file(target) as stream:
        for where, record in read_records(source):
            kept = {field: record[field] for field in FIELDS if field in record}
            kept["title"] = kept.get("title") or ""
            if kept.get("metadata") is None and record.get("year") is not None:
                kept["metadata"] = {"year": record["year"]}
            of_title = _is_empty(kept.get("abstract"))
            if of_title:
                kept["abstract"] = [kept["title"]]
            is_empty = _is_empty(kept["abstract"])
            # Any split serves to check a record; a full stop stands for an absent text.
            checked = kept | {"abstract": ["."]} if is_empty else kept
            paper_id = parse_paper(checked, where, unsplit).paper_id
            if paper_id in papers.ids or paper_id in papers.without_text:
                raise CorpusError(
                    f"{where}: expected each paper_id once, found {paper_id!r} again; drop one of them"
                )
            if is_empty:
                papers.without_text.add(paper_id)
                continue
            papers.ids.add(paper_id)
            if of_title:
                papers.title_only.add(paper_id)
            stream.write(dump_record(releases.raw_record(kept) if raw else kept))
    return papers


def _is_empty(text: Any) -> bool:
    if isinstance(text, list):
        return all(map(_is_empty, text))
    return text is None or (isinstance(text, str) and not text.strip())


def _write_pools(output: Path, qrels: str, split: str, pools: Pools, ids: Collection[str]) -> list[str]:
    """Write a split; papers without text are in the qrels, for a scorer to count, but in no pool."""
    dropped = [query for query in pools if query not in ids]
    in_own_pool = [query for query, pool in pools.items() if query in ids and query in pool]
    judged = {
        query: {paper_id: grade for paper_id, grade in pool.items() if paper_id != query}
        for query, pool in pools.items()
        if query in ids
    }
    if not judged:
        raise DatasetError(
            f"expected queries in {split}, found none that has a text; take all files from one release"
        )
    indexed = {query: [paper_id for paper_id in pool if paper_id in ids] for query, pool in judged.items()}
    topics = (Topic(query, query) for query in judged)
    write_queries(output, topics, {qrels: judged}, indexed, f".{split}")
    number = sum(map(len, judged.values()))
    without_text = number - sum(map(len, indexed.values()))
    lines = [f"  {split}: {len(judged):,} queries, {number:,} judgements"]
    if without_text:
        lines.append(f"    {without_text:,} of them of papers without text: in the qrels, in no pool")
    if dropped:
        lines.append(f"    queries without text, left out: {_some(dropped)}")
    if in_own_pool:
        lines.append(f"    left out of its own pool: {_some(in_own_pool)}")
    return lines


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f", ... ({len(ids):,})" if len(ids) > 5 else "")


def write_irds(name: str, output: Path, report: Report) -> list[str]:
    """Write a collection that ir_datasets has under a name, downloaded by it where need be."""
    package = check_package("ir_datasets")
    report(f"reading {name} by ir_datasets, which downloads what it lacks")
    try:
        dataset = package.load(name)
        texts = {each.query_id: each.default_text() for each in dataset.queries_iter()}
        qrels: dict[str, dict[str, int]] = {}
        for each in dataset.qrels_iter() if dataset.has_qrels() else ():
            qrels.setdefault(each.query_id, {})[each.doc_id] = int(each.relevance)
        absent = {paper_id for grades in qrels.values() for paper_id in grades}
        documents = ((each.doc_id, *_texts(each)) for each in dataset.docs_iter())
        papers = write_papers(output, _papers(documents, absent))
    except (LookupError, AttributeError, OSError, RuntimeError) as error:
        raise DatasetError(
            f"expected documents and queries of {name} from ir_datasets, which has or gets none; check the "
            "name (https://ir-datasets.com lists them) and the network"
        ) from error
    qrels = qrels or {query: {} for query in texts}
    line = _write_split(output, name.replace("/", "-"), texts, qrels, absent)
    return [f"irds: {papers:,} papers of {name}, by ir_datasets", line]


def _texts(document: Any) -> tuple[str, str]:
    body = getattr(document, "abstract", None) or getattr(document, "text", None) or document.default_text()
    return getattr(document, "title", None) or "", body


def _papers(documents: Iterable[tuple[str, str, str]], absent: set[str]) -> Iterator[Paper]:
    """Yield the documents that have a text, and take their ids out of those that are ``absent``."""
    for paper_id, title, text in documents:
        if (text or title).strip():
            absent.discard(paper_id)
            record = {"paper_id": paper_id, "title": title, "abstract": text if text.strip() else title}
            yield parse_paper(record, f"document {paper_id}", unsplit)


def write_beir(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write a collection in BEIR's layout: corpus.jsonl, queries.jsonl, and a split in each qrels/*.tsv."""
    if options.source is None:
        raise UsageError("expected a folder of https://github.com/beir-cellar/beir as `source`, found none")
    folder = Path(options.source)
    splits = sorted(folder.glob("qrels/*.tsv"))
    files = (folder / "corpus.jsonl", folder / "queries.jsonl", *(splits or [folder / "qrels"]))
    if file := next((file.name for file in files if not file.is_file()), ""):
        expected = "corpus.jsonl, queries.jsonl and qrels/*.tsv"
        raise DatasetError(f"{folder}: expected {expected}, found no {file}; give a folder of BEIR")
    texts = {query: text for query, _, text in _rows(folder / "queries.jsonl")}
    judged = {path.stem: _qrels(path) for path in splits}
    absent = {name for qrels in judged.values() for grades in qrels.values() for name in grades}
    papers = write_papers(output, _papers(_rows(folder / "corpus.jsonl"), absent))
    lines = [_write_split(output, name, texts, judged[name], absent, f".{name}") for name in judged]
    return [f"beir: {papers:,} papers from {folder}", *lines]


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for where, record in read_records(path):
        row: tuple[Any, ...] = (record.get("_id"), record.get("title", ""), record.get("text"))
        if not all(isinstance(each, str) for each in row):
            raise DatasetError(
                f"{where}: expected strings as _id, title and text, found {row!a:.80}; mend it"
            )
        yield row[0], row[1], row[2]


def _qrels(path: Path) -> Qrels:
    """Read lines of a query, a document and a grade; a first one without a digit is a header."""
    qrels: dict[str, dict[str, int]] = {}
    for place, (number, row) in enumerate(read_fields(path, "\t")):
        try:
            query, paper_id, grade = row
            qrels.setdefault(query, {})[paper_id] = int(grade)
        except ValueError as error:
            if place or any(map(str.isdigit, "".join(row))):
                expected = "a query id, a document id and a whole number"
                raise bad_line(path, number, expected, "\t".join(row)) from error
    return qrels


def _write_split(
    output: Path, name: str, texts: dict[str, str], qrels: Qrels, absent: set[str], split: str = ""
) -> str:
    if unknown := next((query for query in qrels if query not in texts), None):
        raise DatasetError(
            f"{name}: expected a text of each judged query, found none of {unknown}; mend the files"
        )
    topics = [Topic(query, "", text=texts[query]) for query in qrels]
    judged = [paper_id for grades in qrels.values() for paper_id in grades]
    lacking = sum(paper_id in absent for paper_id in judged)
    write_queries(output, topics, {f"{name}.qrels": qrels} if judged else {}, split=split)
    said = f", {lacking:,} of them of papers that the corpus lacks" if lacking else ""
    return f"  {name}: {len(topics):,} queries, {len(judged):,} judgements{said}"


FIRST_YEAR = 1966  # of DBLP and PubMed
MOST_QUERIES = 20_000
LAST_YEARS = {"dblp": (2007, 2008, 2011), "pubmed": (2008, 2009, 2013)}  # of train, dev and test
CITEOMATIC = {  # their files below the release
    "dblp": "comparison/dblp/corpus.json",
    "pubmed": "comparison/pubmed/corpus.json",
    "open-research": "open_corpus/papers-2017-02-21.json.gz",
}


def write_citeomatic(name: str, options: DatasetOptions, output: Path, report: Report) -> list[str]:
    """Write a collection out of its file, or the folder of the release; return a summary."""
    path = _find(name, options)
    report(f"reading {path} twice, for years and for citations")
    last_years, listed = LAST_YEARS.get(name), output / citations.LISTED
    with citations.listing(listed) as left_out:
        years, without_year = citations.years_of(read_papers(path, left_out, by_title=last_years is None))
    if not years:
        raise DatasetError(
            f"{path}: expected the papers of {name}, found none ({left_out.reasons() or 'an empty file'}); "
            "take the file of the release"
        )
    split_of = citations.by_share(years)
    if last_years:
        old_enough = {paper_id: year for paper_id, year in years.items() if year >= FIRST_YEAR}
        split_of = citations.by_last_years(old_enough, last_years)
        years = {paper_id: years[paper_id] for paper_id in split_of}
    *lines, command = citations.write_collection(
        name,
        output,
        lambda: read_papers(path, RejectedRecords(), by_title=last_years is None),
        years,
        split_of,
        source=str(path),
        without_year=without_year,
        names=citations.SPLITS,
        leave_out=citations.titles_of(options),
        of_train=last_years is not None,
        min_citations=10 if last_years else 1,
        most_queries=None if last_years else MOST_QUERIES,
    )
    if last_years:
        lines.append(f"  only papers of train are relevant: search with --before {last_years[0]}")
    if left_out:
        lines.append(f"  {left_out.summary()}, listed in {listed}")
    return [*lines, command]


def read_papers(path: Path, left_out: RejectedRecords, *, by_title: bool) -> Iterator[Paper]:
    """Yield the papers of a file with ``metadata.cites``; ``by_title`` keeps those without an abstract."""
    seen: set[str] = set()
    with open_source(path) as stream:
        for where, record in json_objects(stream, display_name(path)):
            try:
                if isinstance(record, RecordError):
                    raise record
                paper = parse_paper(_record(record, by_title), where, unsplit)
                if paper.paper_id in seen:
                    raise RecordError(
                        f"{where}: expected each id once, found {paper.paper_id!r} again; drop one of them",
                        "an id that occurs twice",
                    )
            except RecordError as error:
                left_out.skip(where, error)
                continue
            seen.add(paper.paper_id)
            yield paper


def _record(paper: Mapping[str, Any], by_title: bool) -> dict[str, Any]:
    title = paper.get("title_raw") or paper.get("title")
    abstract = next(filter(None, map(paper.get, ("abstract_raw", "paperAbstract", "abstract"))), "")
    authors = [each.get("name") if isinstance(each, dict) else each for each in paper.get("authors") or ()]
    cites = paper.get("out_citations") or paper.get("outCitations")
    metadata = {"authors": list(filter(None, authors)), "cites": cites}
    metadata |= {name: paper.get(name) for name in ("year", "venue")}
    return {
        "paper_id": paper.get("id"),
        "title": title,
        "abstract": abstract or (title if by_title else ""),
        "metadata": {name: value for name, value in metadata.items() if value},
    }


def _find(name: str, options: DatasetOptions) -> Path:
    file = CITEOMATIC[name]
    folder = releases.place_of("citeomatic", options.source) or Path("citeomatic")
    for path in (folder, folder / file, (folder / file).with_suffix(""), folder / Path(file).name):
        if path.is_file():
            return path
    raise DatasetError(
        f"expected {name}'s file {file} in `source` or in $QBE_DATA/citeomatic, found none in {folder}; take "
        "it from get-data.sh of https://github.com/allenai/citeomatic or, of open-research, from Semantic "
        "Scholar's Open Corpus of 2017-02-21"
    )
