"""Papers that are cited together, for the objectives of ASPIRE (Mysore et al., 2022, section 3.1).

S2ORC (Lo et al., 2020) comes as folders ``metadata`` and ``pdf_parses`` of JSON lines. A sentence of a full
text that cites two or three papers is a context of these papers. Without full texts, papers that one paper
cites are taken for cited together, with the sentences of its abstract as contexts: those of a corpus with
``metadata.cites``, such as ``papers.jsonl`` of `citations`. The files are those that ``qbe train encoder``
reads: ``cocitations.jsonl``, a pair of papers a line, and ``papers.jsonl``, all papers of them.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qbe.corpus import read_corpus
from qbe.corpus.json_formats import write_jsonl
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.records import SKIP, Reading, dump_record
from qbe.corpus.sentences import split_sentences, split_spans
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.datasets.releases import DatasetOptions, Report
from qbe.errors import DatasetError, UsageError
from qbe.types import Paper
from qbe.util.files import atomic_file

PAPERS, PAIRS = "papers.jsonl", "cocitations.jsonl"
MOST_CITED = 3  # papers that a sentence of a full text cites; of more, the common subject is wider
SENTENCES, MOST_WORDS = range(3, 21), 80  # of an abstract, and of each of its sentences (appendix A)
MOST_PAIRS = 10  # of the papers that one paper cites, where there are no full texts


def write(options: DatasetOptions, output: Path, _: Report) -> list[str]:
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
                stream.write(_line(cited, (papers[pair[0]], papers[pair[1]]), sentences))
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


def _line(cited: frozenset[str], pair: tuple[Paper, Paper], sentences: list[str]) -> bytes:
    record: dict[str, Any] = {"cited_pids": sorted(cited)}
    for side, paper in zip(("query", "pos_context"), pair, strict=True):
        record[side] = {"TITLE": paper.title, "ABSTRACT": [sentence.text for sentence in paper.sentences]}
    record["citing_contexts"] = sentences
    return dump_record(record)
