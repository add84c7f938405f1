"""Who cites whom: collections of citation recommendation, and papers that are cited together.

A paper that cites others is a query, what it cites is relevant. What a paper of train cites is in its
``metadata.cites``; papers of dev and test have none. Splits follow time: train is the past, dev what came
then, test what came last.

Co-citations are for the objectives of ASPIRE (Mysore et al., 2022, section 3.1). S2ORC (Lo et al., 2020)
comes as folders ``metadata`` and ``pdf_parses`` of JSON lines. A sentence of a full text that cites two or
three papers is a context of these papers. Without full texts, papers that one paper cites are taken for cited
together, with the sentences of its abstract as contexts.
"""

import contextlib
import itertools
import math
import random
import sys
import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from qbe.corpus import records
from qbe.corpus.fields import year
from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_formats import read_jsonl, write_jsonl
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.reading import read_corpus
from qbe.corpus.records import SKIP, Reading, RejectedRecords, dump_record
from qbe.corpus.sentences import split_sentences, split_spans, unsplit
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.datasets.releases import DatasetOptions, Report, find_release, write_queries
from qbe.errors import CorpusError, DatasetError, UsageError
from qbe.query import Topic
from qbe.runs import read_qrels
from qbe.types import Paper
from qbe.util.files import atomic_file

TRAIN, DEV, TEST = SPLITS = ("train", "dev", "test")

PAPERS = "papers.jsonl"
LISTED = f"{PAPERS}{records.REJECTED_SUFFIX}"

WHATEVER_HAS_TEXT = Reading(on_error=records.SKIP, max_rejected=1, keep_without_abstract=True)


def by_share(years: Mapping[str, int]) -> dict[str, str]:
    """Split papers by age: the oldest 80 % are train, the others dev and test, half each."""
    trained = int(0.8 * len(years))
    others = len(years) - trained
    splits = [TRAIN] * trained + [DEV] * (others // 2) + [TEST] * (others - others // 2)
    return dict(zip(sorted(years, key=years.__getitem__), splits, strict=True))


def by_last_years(years: Mapping[str, int], last_years: Sequence[float]) -> dict[str, str]:
    """Split papers at the last years of train, dev and test; younger papers are in no split."""
    places = {paper_id: bisect_left(last_years, of) for paper_id, of in years.items()}
    return {paper_id: SPLITS[place] for paper_id, place in places.items() if place < len(last_years)}


def years_of(papers: Iterable[Paper]) -> tuple[dict[str, int], int]:
    """Return the years of papers by id, and the number of papers without a year."""
    years, without = dict[str, int](), 0
    for paper in papers:
        if (of_paper := year(paper.year)) is not None:
            years[sys.intern(paper.paper_id)] = of_paper
        else:
            without += 1
    return years, without


def cited_before(paper: Paper, years: Mapping[str, int]) -> tuple[str, ...]:
    """Return the ids that a paper cites: without itself, younger papers and repetitions."""
    cites = paper.metadata.get("cites") or ()
    if not isinstance(cites, list | tuple) or not all(isinstance(each, str | int) for each in cites):
        raise CorpusError(
            f"paper {paper.paper_id!r}: expected a list of paper ids as metadata.cites, found "
            f"{ascii(cites)[:60]}; mend the record"
        )
    return tuple(
        sys.intern(each)
        for each in dict.fromkeys(map(str, cites))
        if each != paper.paper_id and each in years and years[each] <= years[paper.paper_id]
    )


@contextlib.contextmanager
def listing(listed: Path) -> Iterator[RejectedRecords]:
    """Count the records that are left out and list them in a file, if there are any."""
    with atomic_file(listed) as lines:
        left_out = RejectedRecords(lines)
        yield left_out
    if not left_out:
        listed.unlink()


def write_collection(
    name: str,
    output: Path,
    read: Callable[[], Iterable[Paper]],
    years: Mapping[str, int],
    splits: Mapping[str, str],
    *,
    source: str,
    without_year: int,
    names: Sequence[str],
    leave_out: TitleIndex,
    of_train: bool = False,
    min_citations: int = 1,
    most_queries: int | None = None,
) -> list[str]:
    """Write a collection to a folder; ``read`` reads the papers from the beginning. Return a summary.

    Leaves out papers without a year. Papers whose titles are in ``leave_out`` are no queries, and their cites
    are left out; nor are papers with fewer than ``min_citations``, of those in train with ``of_train``. Of
    more than ``most_queries`` in dev or test, as many are drawn by seed. The summary has the numbers of Table
    1 of Nogueira et al. (2020), and what was left out.
    """
    queries: dict[str, dict[str, tuple[str, ...]]] = {split: {} for split in names}
    papers = words = dropped = 0
    with atomic_file(output / PAPERS) as stream:
        for paper in read():
            if paper.paper_id not in years:
                continue
            papers += 1
            words += len(paper.title.split()) + len(paper.abstract.split())
            split = splits.get(paper.paper_id)
            cited = cited_before(paper, years) if split else ()
            if of_train:
                cited = tuple(each for each in cited if splits.get(each) == TRAIN)
            if len(cited) < min_citations:
                cited = ()
            elif leave_out.holds(paper.title):
                dropped += 1
                cited = ()
            metadata = {key: value for key, value in paper.metadata.items() if key != "cites"}
            metadata["year"] = years[paper.paper_id]
            if cited and split == TRAIN:
                metadata["cites"] = list(cited)
            record = records.paper_to_record(paper)
            if len(paper.sentences) == 1 and not paper.labelled:
                record["abstract"] = paper.abstract
                record.pop(records.OFFSETS, None)
            stream.write(records.dump_record({**record, "metadata": metadata}))
            if split and cited:
                queries[split][paper.paper_id] = cited
    for split in queries.keys() - {TRAIN}:
        if most_queries is not None and len(queries[split]) > most_queries:
            chosen = random.Random(split).sample(sorted(queries[split]), most_queries)
            queries[split] = {query: queries[split][query] for query in sorted(chosen)}
    if empty := next((split for split, of_split in queries.items() if not of_split), ""):
        total = sum(map(len, queries.values()))
        raise DatasetError(
            f"expected queries in each split, found none in {empty}, of {total:,} papers that cite others of "
            "the collection, none of them younger; check metadata.cites, the years and `leave_out`"
        )
    for split, of_split in queries.items():
        judged = {query: dict.fromkeys(cited, 1) for query, cited in of_split.items()}
        topics = (Topic(query, query) for query in judged)
        write_queries(output, topics, {f"{split}.qrels": judged}, split=f".{split}")
    lines = [f"{name}: {papers:,} candidates from {source}, {words / max(1, papers):.1f} words on average"]
    for split, of_split in queries.items():
        first, last = (of(years[query] for query in of_split) for of in (min, max))
        mean = sum(map(len, of_split.values())) / len(of_split)
        period = str(first) if first == last else f"{first} to {last}"
        lines.append(f"  {split}: {len(of_split):,} queries ({period}), {mean:.1f} citations on average")
    if without_year:
        lines.append(f"  {without_year:,} papers without a year, left out")
    if dropped:
        lines.append(f"  {dropped:,} papers are no queries: papers to leave out have their titles")
    return [*lines, f"next: qbe index --corpus {output / PAPERS} --output indexes/{name}"]


NAME = "citations"
FILES = (PAPERS, "train.qrels", "dev.qrels")
WHERE = f"https://github.com/pisenberg/vispubdata and make {PAPERS}, train.qrels and dev.qrels of it"


def titles_of(options: DatasetOptions) -> TitleIndex:
    """Read the titles of the papers that are no queries."""
    corpora = (read_corpus([str(file)], unsplit, WHATEVER_HAS_TEXT) for file in options.leave_out)
    return TitleIndex(paper.title for papers in corpora for paper in papers)


def write_citations(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write the papers on visualization of vispubdata (Isenberg et al., 2017), or a corpus of one's own."""
    leave_out = titles_of(options)
    if options.corpus is not None:
        return _write_own(options.corpus, options.split_years, output, leave_out)
    folder = find_release(NAME, FILES, WHERE, options.source)
    papers = partial(read_corpus, [str(folder / PAPERS)], unsplit, Reading(keep_without_abstract=True))
    years, without_year = years_of(papers())
    train, dev = (read_qrels(folder / f"{name}.qrels") for name in (TRAIN, DEV))
    cited = {**train, **dev}

    def citing_papers() -> Iterator[Paper]:
        for paper in papers():
            yield replace(paper, metadata={**paper.metadata, "cites": [*cited.get(paper.paper_id, ())]})

    split_of = dict.fromkeys(train, TRAIN) | dict.fromkeys(dev, DEV)
    told: Any = {"source": str(folder), "without_year": without_year, "names": (TRAIN, DEV)}
    return write_collection(NAME, output, citing_papers, years, split_of, **told, leave_out=leave_out)


def _write_own(corpus: str, split_years: Sequence[int], output: Path, leave_out: TitleIndex) -> list[str]:
    """Write a corpus with ``metadata.cites`` as a collection, split at ``split_years`` or by share."""
    with tempfile.TemporaryDirectory(prefix=".read-", dir=output) as folder:
        # Years come before citations, these before splits: the papers are read again, but not their formats.
        once = Path(folder, PAPERS)
        with listing(output / LISTED) as left_out, atomic_file(once) as stream:
            write_jsonl(read_corpus([corpus], unsplit, WHATEVER_HAS_TEXT, left_out), stream)
        papers = partial(read_jsonl, once)
        years, without_year = years_of(papers())
        queries = {
            paper.paper_id: years[paper.paper_id]
            for paper in papers()
            if paper.paper_id in years and cited_before(paper, years)
        }
        ends = [*split_years, math.inf]
        split_of = by_last_years(queries, ends) if split_years else by_share(queries)
        names = SPLITS[: len(split_years) + 1] if split_years else SPLITS
        told: Any = {"source": display_name(corpus), "without_year": without_year, "names": names}
        *lines, command = write_collection(NAME, output, papers, years, split_of, **told, leave_out=leave_out)
    if left_out:
        lines.append(f"  {left_out.summary()}, listed in {output / LISTED}")
    return [*lines, command]


PAIRS = "cocitations.jsonl"
MOST_CITED = 3  # papers that a sentence of a full text cites; of more, the common subject is wider
SENTENCES, MOST_WORDS = range(3, 21), 80  # of an abstract, and of each of its sentences (appendix A)
MOST_PAIRS = 10  # of the papers that one paper cites, where there are no full texts


def write_cocitations(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write pairs of co-cited papers out of S2ORC's folders or a corpus that says what its papers cite."""
    if options.source is None:
        raise UsageError(
            "expected S2ORC's folders or what qbe datasets citations writes as `source`, found none; give one"
        )
    source = Path(options.source)
    source = source / PAPERS if (source / PAPERS).is_file() else source
    full_texts = sorted(source.glob("pdf_parses/*")) if source.is_dir() else []
    reading = Reading(on_error=SKIP, max_rejected=1)
    corpus = [str(path) for path in sorted(source.glob("metadata/*"))] if full_texts else [str(source)]
    if full_texts:
        how, contexts = f"{len(full_texts)} files of full texts", read_contexts(full_texts)
    else:
        how, contexts = "what papers cite", cited_together(read_corpus(corpus, split_sentences, reading))
    wanted = frozenset[str]().union(*contexts)
    papers = {
        paper.paper_id: paper
        for paper in read_corpus(corpus, split_sentences, reading)
        if paper.paper_id in wanted
        and len(paper.sentences) in SENTENCES
        and all(len(sentence.text.split()) <= MOST_WORDS for sentence in paper.sentences)
    }
    pairs = used = 0
    seen = set[str]()
    with atomic_file(output / PAIRS) as stream:
        for cited, sentences in sorted(contexts.items(), key=lambda each: sorted(each[0])):
            known = sorted(cited & papers.keys())
            used += len(known) > 1
            for pair in itertools.combinations(known, 2):
                seen |= set(pair)
                pairs += 1
                record: dict[str, Any] = {"cited_pids": sorted(cited)}
                for side, paper in zip(("query", "pos_context"), map(papers.__getitem__, pair), strict=True):
                    abstract = [sentence.text for sentence in paper.sentences]
                    record[side] = {"TITLE": paper.title, "ABSTRACT": abstract}
                stream.write(dump_record({**record, "citing_contexts": sentences}))
    if not pairs:
        raise DatasetError(
            f"{source}: expected papers that are cited together and have abstracts of {SENTENCES[0]} to "
            f"{SENTENCES[-1]} sentences, found none in {len(contexts):,} sets of papers; take more papers"
        )
    with atomic_file(output / PAPERS) as stream:
        write_jsonl((paper for paper_id, paper in papers.items() if paper_id in seen), stream)
    return [
        f"cocitations: {pairs:,} pairs of {len(seen):,} papers in {used:,} sets cited together, out of {how}",
        f"next: qbe train encoder --objective bi-encoder --cocitations {output / PAIRS} ...",
    ]


def read_contexts(files: Iterable[Path]) -> dict[frozenset[str], list[str]]:
    """Read the sentences of S2ORC's full texts that cite two or three papers with known ids."""
    contexts = defaultdict[frozenset[str], list[str]](list)
    for path in files:
        name = display_name(path)
        with open_source(path) as stream:
            for number, line in numbered_lines(stream, name):
                where = f"{name}, line {number}"
                parse = decode_record(decode_text(line, where), where)
                try:
                    entries = parse.get("bib_entries") or {}
                    links = {ref: str(entry.get("link") or "") for ref, entry in entries.items()}
                    for paragraph in parse.get("body_text") or ():
                        for cited, sentence in _citing(paragraph, links):
                            contexts[cited].append(sentence)
                except (AttributeError, KeyError, TypeError) as error:
                    raise DatasetError(
                        f"{where}: expected body_text with cite_spans, and bib_entries with links, found "
                        "another form; take S2ORC's pdf_parses"
                    ) from error
    return contexts


def _citing(paragraph: Mapping[str, Any], links: Mapping[str, str]) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the sentences of a paragraph that cite two or three known papers, with the ids of these."""
    text, spans = paragraph.get("text") or "", paragraph.get("cite_spans") or ()
    if len(spans) < 2:
        return
    for begin, end in split_spans(text):
        inside = (span for span in spans if begin <= span["start"] < end)
        cited = frozenset(link for span in inside if (link := links.get(span.get("ref_id") or "")))
        if 2 <= len(cited) <= MOST_CITED:
            yield cited, text[begin:end]


def cited_together(papers: Iterable[Paper]) -> dict[frozenset[str], list[str]]:
    """Draw pairs of the papers that each paper cites, by a seed of its id, with its sentences."""
    contexts = defaultdict[frozenset[str], list[str]](list)
    for paper in papers:
        cites = paper.metadata.get("cites") or ()
        pairs = list(itertools.combinations(dict.fromkeys(map(str, cites)), 2))
        for pair in random.Random(paper.paper_id).sample(pairs, min(MOST_PAIRS, len(pairs))):
            contexts[frozenset(pair)] += [sentence.text for sentence in paper.sentences]
    return contexts
