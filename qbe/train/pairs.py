"""Lists of graded pairs to train on: which files, which pairs of them, their papers, and correlations."""

import logging
import math
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_formats import read_jsonl
from qbe.corpus.sentences import split_sentences, unsplit
from qbe.errors import CorpusError, UsageError
from qbe.index.reader import IndexReader
from qbe.models.encoder import Encoder
from qbe.models.encoding import Floats
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.train.work import Sources
from qbe.types import Facet, Paper, Sentence

log = logging.getLogger(__name__)
Lists = dict[str, list[GradedPair]]
EVERY_FACET = range(len(Facet))

DATA = Path(__file__).parents[2] / "data"  # of a checkout; the READMEs there describe its graded pairs


def data_file(parameter: str, name: str) -> Path:
    """A file or folder of graded pairs of the repository; an installation has none."""
    for folder in (DATA, Path("data")):  # of a checkout that is installed, or is the working directory
        if (folder / name).exists():
            return folder / name
    raise UsageError(
        f"expected data/{name} of a checkout of qbe's repository, found no such file; give a copy of it, "
        f"or other graded pairs, as `{parameter}`"
    )


def pair_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Files of pairs to train on: paths that are files, and for each folder its ``train*.tsv`` by name."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("train*.tsv"), key=lambda file: file.stem) if path.is_dir() else [path]
        files += inside
        if not inside:
            raise UsageError(f"{path}: expected train*.tsv in the folder, found none; check `pairs`")
    return tuple(files)


def file_label(file: Path) -> str:
    """How figures name a file of pairs."""
    return f"{file.parent.name}/{file.name}"


def read_lists(file: Path, facets: Sequence[int] = EVERY_FACET) -> Lists:
    """The pairs of a file that have grades of some facets; of all, a pair without one is an error."""
    return {
        query: [pair for pair in pairs if not any(math.isnan(pair.grades[facet]) for facet in facets)]
        for query, pairs in read_graded_pairs(file, partial=len(facets) < len(EVERY_FACET)).items()
    }


def without(lists: GradedLists, excluded: Container[str]) -> Lists:
    """The pairs whose query and candidate are not ``excluded`` ids; queries without a pair are dropped."""
    kept = {
        query: [pair for pair in pairs if pair.paper_id not in excluded]
        for query, pairs in lists.items()
        if query not in excluded
    }
    return {query: pairs for query, pairs in kept.items() if pairs}


def within(lists: GradedLists, reader: IndexReader) -> Lists:
    """The lists of two candidates or more whose query and candidates an index holds: others have no order."""
    papers = papers_of(lists)
    kept = without(lists, {name for name in papers if reader.papers.find(name) is None})
    kept = {query: pairs for query, pairs in kept.items() if len(pairs) > 1}
    if not kept:
        raise CorpusError(
            f"expected graded pairs of papers of the index, found none of {len(papers):,}; give an index "
            "that holds them"
        )
    return kept


def papers_of(*sets: GradedLists) -> set[str]:
    """The ids of all queries and candidates."""
    return {
        paper_id
        for lists in sets
        for query, pairs in lists.items()
        for paper_id in (query, *(pair.paper_id for pair in pairs))
    }


def encoder_of(reader: IndexReader) -> dict[str, Any]:
    """The identity of the encoder of an index."""
    reader.require_vectors()
    assert reader.manifest.dense is not None
    encoder: dict[str, Any] = reader.manifest.dense["encoder"]
    return encoder


def without_evaluated(lists: GradedLists, reader: IndexReader, evaluated: Path) -> Lists:
    """The pairs whose papers have no title like one of a corpus ``evaluated``; what the index lacks stays."""
    titles = TitleIndex.of_corpus(evaluated)
    held = (name for name in papers_of(lists) if reader.papers.find(name) is not None)
    return without(lists, {name for name in held if titles.holds(reader.paper(name).title)})


def split_lists(
    sources: Sources, facets: Sequence[int] = EVERY_FACET
) -> tuple[Lists, Mapping[str, GradedLists]]:
    """Graded lists to train on, without the queries of dev, and those of dev by the label of the file.

    The lists that several files have of one query are joined; of a pair the last file's grades count.
    """
    dev = {file_label(file): read_lists(file, facets) for file in sources.dev}
    of_dev = {query for lists in dev.values() for query in lists}
    pairs: dict[str, dict[str, GradedPair]] = {}
    for file in sources.train:
        for query, some in read_lists(file, facets).items():
            pairs.setdefault(query, {}).update({pair.paper_id: pair for pair in some})
    return without({query: list(some.values()) for query, some in pairs.items()}, of_dev), dev


def read_indexed_lists(
    sources: Sources, reader: IndexReader, facets: Sequence[int] = EVERY_FACET
) -> tuple[Lists, Mapping[str, GradedLists]]:
    """`split_lists`, of papers of an index, and to train on without evaluated ones."""
    train, dev = split_lists(sources, facets)
    train = within(without_evaluated(train, reader, sources.leave_out), reader)
    return train, {label: within(lists, reader) for label, lists in dev.items()}


def read_graded_papers(
    sources: Sources, encoder: Encoder, tagger: Tagger
) -> tuple[Lists, Mapping[str, GradedLists], dict[str, Paper]]:
    """`split_lists`, and their papers by id out of a corpus, with facets; trained on none to leave out."""
    train, dev = split_lists(sources)
    check_dev(dev, sources)
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    missing = papers_of(train, *dev.values())
    log.info("looking for %d papers in %s", len(missing), sources.corpus)
    papers = {
        paper.paper_id: replace(paper, sentences=tuple(map(Sentence, split_sentences(paper.abstract))))
        for paper in read_jsonl(sources.corpus, unsplit)
        if paper.paper_id in missing
    }
    missing -= set(papers)
    if missing:
        raise CorpusError(
            f"{sources.corpus}: expected all papers of the graded pairs, found none of {len(missing)}, such "
            f"as {min(missing)}; give the corpus that the pairs were made from"
        )
    log.info("predicting facets")
    tagging = TaggingEncoder(encoder, tagger, "predicted")
    papers = {paper.paper_id: paper for paper, _ in tagging.encode(papers.values())}
    train = without(train, {name for name, paper in papers.items() if evaluated.holds(paper.title)})
    log.info("training on %d lists; %d papers", len(train), len(papers))
    return train, dev, papers


def check_dev(dev: Mapping[str, GradedLists], sources: Sources) -> None:
    """Raise CorpusError where no list of a file of dev has two different grades for a facet."""
    for file in sources.dev:
        known = set()
        for pairs in dev[file_label(file)].values():
            columns = zip(*(pair.grades for pair in pairs), strict=True)
            known |= {facet for facet, grades in zip(Facet, columns, strict=True) if len(set(grades)) > 1}
        if missing := [str(facet) for facet in Facet if facet not in known]:
            raise CorpusError(
                f"{file}: expected a query with two different grades for each facet, found none for "
                f"{', '.join(missing)}; give more pairs as `dev`"
            )


def in_steps(lists: GradedLists, size: int) -> Callable[[str], Iterator[list[str]]]:
    """Give queries of lists of two or more candidates by steps of ``size``, without the rest, in the order of
    a seed; raises CorpusError where there are fewer.
    """
    queries = sorted(query for query, pairs in lists.items() if len(pairs) > 1)
    if len(queries) < size:
        raise CorpusError(
            f"expected at least {size} lists of two or more candidates to train on, found "
            f"{len(queries)}; give more pairs"
        )

    def steps(seed: str) -> Iterator[list[str]]:
        order = random.Random(seed).sample(queries, len(queries))
        for first in range(0, len(order) - size + 1, size):
            yield order[first : first + size]

    return steps


def sample_unrelated(pairs: Sequence[GradedPair], count: int, rng: random.Random) -> list[GradedPair]:
    """The pairs with a grade of 1 or more, and at most ``count`` of the others, at random; in their order."""
    unrelated = [place for place, pair in enumerate(pairs) if max(pair.grades) < 1]
    dropped = set(rng.sample(unrelated, max(0, len(unrelated) - count)))
    return [pair for place, pair in enumerate(pairs) if place not in dropped]


def facet_correlations(lists: Iterable[tuple[Floats, Sequence[Sequence[float]]]]) -> list[float]:
    """For each facet the mean over lists of Spearman's correlation of scores (candidates, facets) and grades,
    0 where only all scores are equal; lists without two grades for a facet are left out there, NaN where all
    are.
    """
    from scipy.stats import spearmanr

    known: dict[int, list[float]] = {}
    for scores, grades in lists:
        for facet, (column, truth) in enumerate(
            zip(scores.T.tolist(), zip(*grades, strict=True), strict=True)
        ):
            of_facet = known.setdefault(facet, [])
            if len(set(truth)) > 1:
                of_facet.append(float(spearmanr(column, truth).statistic) if len(set(column)) > 1 else 0.0)
    return [float(np.mean(of_facet)) if of_facet else math.nan for of_facet in known.values()]
