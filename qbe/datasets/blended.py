"""Blended papers, after FaBLE (Do et al., 2025): the background of one, the method of another, the result
of a third, so that facets disagree in training.

FaBLE's units are written by a language model; those here are the labelled sentences of real papers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from qbe.corpus import read_corpus
from qbe.corpus.records import SKIP, Reading
from qbe.datasets.releases import DatasetOptions, Report, write_papers
from qbe.errors import DatasetError, UsageError
from qbe.runs import PAIRS_HEADER, GradedPair, read_graded_pairs
from qbe.types import Facet, Paper
from qbe.util.files import write_text

SIMILAR = 2.0  # the smallest grade of a candidate that lends a facet


def write(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write graded pairs with blended candidates (``pairs.tsv``) and all their papers (``corpus.jsonl``)."""
    source, corpus = options.source, options.corpus
    if source is None or corpus is None:
        raise UsageError(
            "expected a file of graded pairs as `source`, and as `corpus` their papers with labelled "
            "sentences, as qbe tag writes them; give both"
        )
    lists = read_graded_pairs(source)
    wanted = {*lists, *(pair.paper_id for pairs in lists.values() for pair in pairs)}
    read = read_corpus([corpus], None, Reading(on_error=SKIP))
    papers = {paper.paper_id: paper for paper in read if paper.labelled and paper.paper_id in wanted}
    if missing := wanted - papers.keys():
        raise DatasetError(
            f"{corpus}: expected the {len(wanted):,} papers of {source} with labelled sentences, found "
            f"{len(missing):,} not there, such as {min(missing)}; label the papers of the pairs by qbe tag"
        )
    blended, blends = with_blends(lists, papers)
    rows = [PAIRS_HEADER]
    rows += [(q, p.paper_id, *map("{:g}".format, p.grades)) for q in blended for p in blended[q]]
    write_text(output / "pairs.tsv", "".join("\t".join(row) + "\n" for row in rows))
    write_papers(output, [*papers.values(), *blends.values()])
    return [
        f"blended: {len(blends):,} blended candidates beside {sum(map(len, lists.values())):,} pairs of "
        f"{len(lists):,} queries, {len(papers):,} papers"
    ]


def with_blends(
    lists: Mapping[str, Sequence[GradedPair]], papers: Mapping[str, Paper]
) -> tuple[dict[str, list[GradedPair]], dict[str, Paper]]:
    """Add up to three candidates to each list, one for each facet, and return them by id.

    Such a candidate has that facet, and its grade, of a candidate that is graded SIMILAR or more for it (one
    at random), and the others of random papers of other lists, graded 0: a hard negative for these. Its title
    is that of the paper with its background.
    """
    candidates = sorted({pair.paper_id for pairs in lists.values() for pair in pairs})
    lenders = {
        facet: [name for name in candidates if any(s.facet is facet for s in papers[name].sentences)]
        for facet in Facet
    }
    blended, blends = {query: list(pairs) for query, pairs in lists.items()}, dict[str, Paper]()
    for query, pairs in lists.items():
        rng = random.Random(f"0-{query}")
        listed = {query, *(pair.paper_id for pair in pairs)}
        for number, facet in enumerate(Facet):
            able = set(lenders[facet])
            similar = [pair for pair in pairs if pair.grades[number] >= SIMILAR and pair.paper_id in able]
            strangers = {
                other: [name for name in rng.sample(names, min(10, len(names))) if name not in listed]
                for other, names in lenders.items()
                if other is not facet
            }
            if not similar or not all(strangers.values()):
                continue
            chosen = rng.choice(similar)
            named = {other: names[0] for other, names in strangers.items()} | {facet: chosen.paper_id}
            parts = {each: papers[named[each]] for each in Facet}
            sentences = tuple(s for each, paper in parts.items() for s in paper.sentences if s.facet is each)
            paper_id = "+".join(paper.paper_id for paper in parts.values())
            title = parts[Facet.BACKGROUND].title
            blends[paper_id] = Paper(paper_id, title, sentences, labelled=True)
            grades = tuple(grade if place == number else 0.0 for place, grade in enumerate(chosen.grades))
            blended[query].append(GradedPair(paper_id, grades))
    return blended, blends
