"""``python -m benchmarks.citation_tokens``: how much of query and candidates must be read.

Title and abstract of every paper are cut to a number of the encoder's tokens (Nogueira, Jiang, Cho and Lin,
2020, Figure 1, with 64 to 448 of them), an index is built of what is left, words and vectors, and the queries
of dev, cut as well, are ranked by the citation model: by default, and without who cites whom, by texts and
years alone. A third ranking reads so many tokens of the query and the rest of 512 of a candidate, as a model
does that reads both at once. Finished indexes and runs stay in ``--work``, from which the same call goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.charts import Chart, Line, write_chart
from benchmarks.citation_common import (
    DEPTH,
    PACKAGES,
    SIGNIFICANT,
    chance,
    collection_options,
    decimals,
    ranked,
)
from benchmarks.common import machine, positive, table
from qbe import _cli

if TYPE_CHECKING:
    from qbe.evaluate.results import CitationResult
    from qbe.run import Run
    from qbe.types import Paper

BUDGETS = (64, 128, 192, 256, 320, 384, 448)
TOGETHER = 512
"""Tokens of query and candidate, where they share them."""

F1, MRR, RECALL = "F1@20", "MRR", "R@1000"


class Ranking(NamedTuple):
    """A way to rank: its ``name``, whether who cites whom counts, and whether the query has what candidates
    leave of 512 tokens, instead of as many as they.
    """

    name: str
    links: bool
    shared: bool


RANKINGS = (
    Ranking("default", links=True, shared=False),
    Ranking("without links", links=False, shared=False),
    Ranking("without links, 512 together", links=False, shared=True),
)


def budget_of(text: str) -> int:
    """Parse a number of tokens that leaves some of those that query and candidate share."""
    tokens = positive(text)
    if tokens >= TOGETHER:
        raise argparse.ArgumentTypeError(f"expected fewer than {TOGETHER} tokens, found {tokens}")
    return tokens


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.citation_tokens", description=__doc__.split("\n\n")[0])
    collection_options(parser)
    parser.add_argument(
        "--work", type=Path, required=True, metavar="DIR", help="where indexes and runs are kept; used again"
    )
    parser.add_argument("--budgets", type=budget_of, nargs="+", default=BUDGETS, help="default: 64 to 448")
    parser.add_argument("--model", metavar="DIR", help="a citation model (default: the one that ships)")
    parser.add_argument("--encoder", help="whose vectors it reads (default: the one of qbe index)")
    return parser


def cut(paper: Paper, budget: int, count: Callable[[str], int]) -> Paper:
    """The title, and of the abstract as many whole words as fit behind it, at least one.

    ``count`` gives the tokens of a text, which are those of its words; special tokens do not count.
    """
    room = budget - count(paper.title)
    kept = []
    for sentence in paper.sentences:
        room -= (tokens := count(sentence.text))
        if room >= 0:
            kept.append(sentence)
            continue
        words = sentence.text.split()
        ends = itertools.accumulate(map(count, words))
        fitting = sum(end <= room + tokens for end in ends)
        if not kept:
            fitting = max(fitting, 1)
        if fitting:
            kept.append(sentence._replace(text=" ".join(words[:fitting])))
        return dataclasses.replace(paper, sentences=tuple(kept), offsets=None)
    return paper


class Budgets:
    """The papers of a collection at any budget, and their rankings, kept in a work folder."""

    def __init__(
        self, collection: Path, work: Path, threads: int, model: str | None = None, encoder: str | None = None
    ) -> None:
        from qbe.cite.model import WEIGHTS, default_model
        from qbe.corpus import read_corpus
        from qbe.encode.tokenizer import PaperTokenizer
        from qbe.files import sha256
        from qbe.models.encoder_files import resolve_encoder
        from qbe.models.registry import DEFAULT_ENCODER
        from qbe.text.split import split_sentences
        from qbe.train.work_folder import check_provenance
        from qbe.trec import read_qrels

        corpus, qrels = collection / "papers.jsonl", collection / "dev.qrels"
        self.qrels = read_qrels(qrels)
        self.papers = list(read_corpus([str(corpus)], split_sentences))
        self._encoder = encoder or DEFAULT_ENCODER
        tokenizer = PaperTokenizer(resolve_encoder(self._encoder).tokenizer)
        self._count = lambda text: len(tokenizer.ids(text))
        self._work, self._model, self._threads = work, model, threads
        weights = (default_model() if model is None else Path(model)) / WEIGHTS
        files = {
            name: sha256(file) for name, file in (("papers", corpus), ("qrels", qrels), ("model", weights))
        }
        work.mkdir(parents=True, exist_ok=True)
        check_provenance(work, {**files, "encoder": self._encoder, "qbe": metadata.version("qbe")})

    def cut(self, budget: int) -> list[Paper]:
        """All papers, cut."""
        return [cut(paper, budget, self._count) for paper in self.papers]

    def built(self, budget: int) -> dict[str, float]:
        """Build the index unless it is there; how many papers were cut, and the seconds that it took."""
        from qbe.files import write_text
        from qbe.index.building.build import build
        from qbe.index.building.settings import BuildSettings, Execution

        note = self._work / f"{budget}.json"
        if not note.exists():
            papers = self.cut(budget)
            changed = sum(paper is not whole for paper, whole in zip(papers, self.papers, strict=True))
            begin = time.perf_counter()
            settings, execution = BuildSettings(encoder=self._encoder), Execution(threads=self._threads)
            build(self._folder(budget), papers, settings, overwrite=True, execution=execution)
            seconds = time.perf_counter() - begin
            write_text(note, json.dumps({"cut": changed, "seconds": seconds}) + "\n")
        described: dict[str, float] = json.loads(note.read_text())
        return described

    def evaluated(self, budget: int, ranking: Ranking) -> CitationResult:
        """The figures of the queries of dev over the index of a budget; the run is kept."""
        from qbe.evaluate.citations import citations_protocol
        from qbe.run import Run

        file = self._work / f"{budget}.{ranking.name.replace(', ', '.').replace(' ', '-')}.trec"
        if not file.exists():
            self._run(budget, ranking).write(file)
        return citations_protocol(self.qrels, Run.from_trec(file))

    def _run(self, budget: int, ranking: Ranking) -> Run:
        from qbe.cite.config import CiteConfig
        from qbe.cite.recommender import CiteRequest, Recommender
        from qbe.index.opening import open_index
        from qbe.search.filters import PaperFilter

        papers = self.cut(TOGETHER - budget if ranking.shared else budget)
        queries = [paper for paper in papers if paper.paper_id in self.qrels]
        config = CiteConfig(model=self._model, links=ranking.links, filter=PaperFilter(before="query"))
        with (
            open_index(self._folder(budget), threads=self._threads) as index,
            Recommender.open(index, config) as recommender,
        ):
            return ranked(
                lambda block: recommender.batch_recommend(
                    list(map(CiteRequest, block)), DEPTH, matches=False
                ),
                queries,
            )

    def _folder(self, budget: int) -> Path:
        return self._work / f"{budget}"


def row_of(result: CitationResult) -> list[str]:
    """The figures of a ranking, as cells of a table."""
    return [decimals(result.figures[label]["all"] or 0.0) for label in (F1, MRR, RECALL)]


def enough(figures: Mapping[int, float], chances: Mapping[int, float]) -> int:
    """The smallest budget from which on none is significantly worse than the largest.

    ``figures`` are by budget; ``chances`` the p-values of the differences to the largest one, which has none.

    >>> enough({64: 0.1, 128: 0.19, 256: 0.2}, {64: 0.001, 128: 0.4})
    128
    """
    last = max(figures)
    worse = [
        tokens
        for tokens, figure in figures.items()
        if tokens != last and figure < figures[last] and chances[tokens] < SIGNIFICANT
    ]
    return min(tokens for tokens in figures if tokens > max(worse, default=0))


def finding(figures: Mapping[int, float], chances: Mapping[int, float]) -> str:
    """The sentence on the budgets, from F1@20 by budget and p-values as in `enough`."""
    first, last, reached = min(figures), max(figures), enough(figures, chances)
    said = [
        f"{decimals(figures[tokens])} with {tokens} ({chance(chances[tokens])})"
        for tokens in sorted({first, reached} - {last})
    ]
    verdict = "does not hold here" if reached == first else f"holds here up to {reached} tokens"
    return (
        f"That longer texts are ranked better {verdict}: by texts and years F1@20 is {', '.join(said)} and "
        f"{decimals(figures[last])} with {last}."
    )


def compared(results: Mapping[int, CitationResult]) -> dict[int, float]:
    """The p-value of the difference in F1@20 of each budget to the largest."""
    from qbe.evaluate.significance import compare

    last = max(results)
    smaller = {str(tokens): result for tokens, result in results.items() if tokens != last}
    comparisons = compare(smaller, {str(last): results[last]}, [F1])
    return {int(each.system): each.randomization_p_holm for each in comparisons}


def chart(results: Mapping[Ranking, Mapping[int, CitationResult]]) -> Chart:
    """F1@20 by budget, one line a way to rank."""
    budgets = sorted(results[RANKINGS[0]])
    lines = [
        Line(ranking.name, [by_budget[tokens].figures[F1]["all"] or 0.0 for tokens in budgets])
        for ranking, by_budget in results.items()
    ]
    return Chart(
        "Citation recommendation by tokens read", "tokens of a candidate", F1, list(map(str, budgets)), lines
    )


def main(argv: list[str]) -> None:
    from qbe.plots import check_plot

    options = parser().parse_args(argv)
    if options.plot:
        check_plot(options.plot)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    budgets = Budgets(options.collection, options.work, threads, options.model, options.encoder)
    print(f"{len(budgets.papers):,} papers, {len(budgets.qrels)} queries\n")
    rows: list[list[str]] = []
    results: dict[Ranking, dict[int, CitationResult]] = {ranking: {} for ranking in RANKINGS}
    for tokens in sorted(set(options.budgets)):
        built = budgets.built(tokens)
        for ranking in RANKINGS:
            results[ranking][tokens] = budgets.evaluated(tokens, ranking)
        both, alone = (row_of(results[ranking][tokens]) for ranking in RANKINGS[:2])
        rows.append([str(tokens), f"{built['cut']:,}", f"{built['seconds']:.0f}", *both, *alone])
    labels = (F1, MRR, RECALL)
    print(
        table(["tokens", "papers cut", "indexing, s", *labels, *(f"{each}, texts" for each in labels)], rows)
    )
    shared = results[RANKINGS[2]]
    rows = [[str(TOGETHER - tokens), str(tokens), *row_of(shared[tokens])] for tokens in reversed(shared)]
    print("", table(["tokens of the query", "of a candidate", *labels], rows), sep="\n", end="\n\n")
    by_texts = results[RANKINGS[1]]
    figures = {tokens: result.figures[F1]["all"] or 0.0 for tokens, result in by_texts.items()}
    if len(figures) > 1:
        print(finding(figures, compared(by_texts)))
    if options.plot:
        write_chart(Path(options.plot), chart(results))


if __name__ == "__main__":
    _cli.run("benchmarks.citation_tokens", main)
