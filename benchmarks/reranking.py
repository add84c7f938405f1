"""``python -m benchmarks.reranking``: pairs a second, against sentence-transformers on PyTorch.

Same weights (the packaged encoder with a random head), same pairs, same token budgets, same threads. Texts
are cut to the budgets beforehand, so that all sides read the same tokens. sentence-transformers gets all
pairs at once, sorts them by length and batches them; qbe reranks query by query.
"""

import dataclasses
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import SAMPLE, Stage, interleaved, machine, parsed, rate_table, spread
from qbe.cli import common as _cli
from qbe.models.encoding import EncodedAspect
from qbe.query import Aspect
from qbe.search.rank import Reranker, RerankRequest
from qbe.search.rerankers import SIDE_TOKENS, closed
from qbe.types import Paper, Sentence
from qbe.util.work import thread_count

BATCHES = (8, 16, 32)
CANDIDATES = 100
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy")


class Task(NamedTuple):
    """An aspect of a query and the candidates to rerank for it."""

    aspect: Aspect
    papers: list[Paper]

    @property
    def request(self) -> RerankRequest:
        """The task as rerankers take it."""
        return RerankRequest(EncodedAspect.of(self.aspect), self.papers)

    def texts(self) -> list[tuple[str, str]]:
        """The pairs as texts, in the layout of the tokens in `qbe.search.rerankers`."""
        query = _text(self.aspect.paper.title, _selected(self.aspect))
        return [(query, _text(paper.title, paper.sentences)) for paper in self.papers]


def tasks(folder: Path, pairs: int, each: int) -> tuple[str, list[Task]]:
    """Queries spaced evenly over the topics of CSFCube below QBE_DATA, or of the sample, with at most
    ``each`` candidates, ``pairs`` in all: the query's pool, then other papers. ``folder`` gets CSFCube.
    """
    from qbe.corpus.json_formats import read_jsonl
    from qbe.datasets.collections import convert_csfcube
    from qbe.runs import read_pools, read_topics

    if os.environ.get("QBE_DATA"):
        name = "CSFCube"
        convert_csfcube(Path(os.environ["QBE_DATA"]) / "csfcube", folder)
    else:
        name, folder = "the sample of the tests", SAMPLE
    papers = {paper.paper_id: paper for paper in read_jsonl(folder / "corpus.jsonl")}
    topics, pools = read_topics(folder / "topics.tsv"), read_pools(folder / "pools.tsv")
    count = min(math.ceil(pairs / each), len(topics))
    chosen: list[Task] = []
    for topic in (topics[i * len(topics) // count] for i in range(count)):
        others = dict.fromkeys([*pools[topic.query_id], *papers])
        del others[topic.paper_id]
        size = min(each, pairs - each * len(chosen))
        candidates = [papers[paper_id] for paper_id in list(others)[:size]]
        chosen.append(Task(Aspect(papers[topic.paper_id], topic.facet), candidates))
    return name, chosen


def fitted(task: Task, tokenizer: Any) -> Task:
    """The task with texts cut, between words, to the default token budgets, so that no reader cuts more."""
    paper = dataclasses.replace(task.aspect.paper, sentences=tuple(_selected(task.aspect)))
    query = _fitted(paper, tokenizer, SIDE_TOKENS - 2)
    room = SIDE_TOKENS - 1
    return Task(
        dataclasses.replace(task.aspect, paper=query),
        [_fitted(paper, tokenizer, room) for paper in task.papers],
    )


def write_classifier(folder: Path) -> None:
    """Write the packaged encoder as a sequence classifier of one label, its head random from a fixed seed."""
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    from qbe.models.folders import MINILM, packaged_weights

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity(logging.ERROR)  # it would warn that the head is new, as meant here
    source = packaged_weights(MINILM)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(str(source), num_labels=1)
    model.save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)


def _selected(aspect: Aspect) -> Iterator[Sentence]:
    return (aspect.paper.sentences[position] for position in sorted(aspect.selected_positions()))


def _text(title: str, sentences: Iterable[Sentence]) -> str:
    return " ".join([closed(title), *(sentence.text for sentence in sentences)])


def _fitted(paper: Paper, tokenizer: Any, room: int) -> Paper:
    room -= len(tokenizer.encode(closed(paper.title), add_special_tokens=False).ids)
    sentences = tuple(_cut(paper.sentences, tokenizer, room))
    return dataclasses.replace(paper, sentences=sentences, offsets=None)


def _cut(sentences: Iterable[Sentence], tokenizer: Any, room: int) -> Iterator[Sentence]:
    for sentence in sentences:
        encoding = tokenizer.encode(sentence.text, add_special_tokens=False)
        if len(encoding.ids) <= room:
            room -= len(encoding.ids)
            yield sentence
            continue
        if room > 0:
            begin, _ = encoding.offsets[room]  # of the first token that does not fit
            words, _, _ = sentence.text[: begin + 1].rpartition(" ")
            if words:
                yield sentence._replace(text=words)
        return


def main(argv: list[str]) -> None:
    options = parsed("reranking", __doc__, argv, pairs=300, rounds=5, threads={}, peers={})
    threads = thread_count(options.threads)
    print(machine(threads, PACKAGES))

    from qbe.models.export.encoder import export_cross_encoder
    from qbe.search.rerankers import open_reranker
    from qbe.util.work import Workers

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        name, chosen = tasks(folder / "collection", options.pairs, CANDIDATES)
        total, each = sum(len(task.papers) for task in chosen), len(chosen[0].papers)
        print(f"{name}: {total} pairs ({len(chosen)} queries, {each} candidates), {options.rounds} rounds\n")
        write_classifier(folder / "classifier")
        exported = str(folder / "exported")
        export_cross_encoder(folder / "classifier", "MiniLM, random head", "built here", Path(exported))
        encoders: dict[str, Reranker] = {
            f"qbe {precision}": open_reranker(exported, precision=precision, workers=Workers(threads))
            for precision in ("int8", "fp32")
        }
        _against_peer(encoders, folder / "classifier", chosen, threads, options.rounds, options.peers)


def _against_peer(
    encoders: Mapping[str, Reranker],
    classifier: Path,
    chosen: Sequence[Task],
    threads: int,
    rounds: int,
    peers: Path,
) -> None:
    import torch
    from tokenizers import Tokenizer

    from benchmarks import floors
    from benchmarks.sides import onnx_rounds

    torch.set_num_threads(threads)
    tokenizer = Tokenizer.from_file(str(classifier / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    same = [fitted(task, tokenizer) for task in chosen]
    texts = [pair for task in same for pair in task.texts()]
    peer = _peer(classifier)
    actions: dict[str, Stage] = {
        name: functools.partial(_scores, reranker, same) for name, reranker in encoders.items()
    }
    for size in BATCHES:
        actions[f"ST fp32, batch {size}"] = functools.partial(peer, texts, batch_size=size)
    actions |= onnx_rounds(peers, "cross-encoder", classifier, texts, BATCHES, threads)
    before = floors.products(threads)
    times = interleaved(actions, rounds)
    after = floors.products(threads)
    print(rate_table(times, len(texts), "pairs"))
    _agreement(encoders, same, peer(texts, batch_size=BATCHES[0]))
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    _floor(lengths, {name: max(rate, after[name]) for name, rate in before.items()})


def _scores(reranker: Reranker, chosen: Sequence[Task]) -> list[list[float]]:
    return [[entry.score for entry in reranker.batch_score([task.request])[0]] for task in chosen]


def _agreement(encoders: Mapping[str, Reranker], chosen: Sequence[Task], expected: Any) -> None:
    import numpy as np
    from scipy.stats import spearmanr

    print(f"\nscores of ST fp32: standard deviation {np.std(expected):.4f}")
    for name, reranker in encoders.items():
        by_query = _scores(reranker, chosen)
        largest = np.abs(np.concatenate(by_query) - expected).max()
        first, correlations = 0, []
        for scores in by_query:
            original = expected[first : first + len(scores)]
            correlations.append(float(spearmanr(scores, original).statistic))
            first += len(scores)
        print(
            f"{name} with ST fp32: largest difference {largest:.6f}, Spearman within a query "
            f"{spread(correlations, '{:.4f}')}"
        )


def _floor(lengths: Sequence[int], rates: Mapping[str, float]) -> None:
    from benchmarks.encoding import flops

    work = sum(sum(flops(length, layers=6, hidden=384)) for length in lengths) / len(lengths)
    print(
        f"\n{sum(lengths) / len(lengths):.0f} tokens a pair; matrix products of one pass of the "
        f"cross-encoder: {work / 1e9:.2f} GFLOP a pair"
    )
    for name, rate in rates.items():
        print(f"measured {name} product: {rate / 1e9:,.0f} GFLOP/s, so at most {rate / work:,.0f} pairs/s")


def _peer(classifier: Path) -> Any:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        str(classifier), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"}
    )
    return functools.partial(model.predict, activation_fn=torch.nn.Identity(), show_progress_bar=False)


if __name__ == "__main__":
    _cli.run("benchmarks.reranking", main)
