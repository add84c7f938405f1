"""Inputs of the rerankers' timings: queries with candidates, and a classifier as large as the encoder."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from qbe.models.pooling import EncodedAspect
from qbe.query import Aspect
from qbe.search.rank import RerankRequest
from qbe.search.rerankers import SIDE_TOKENS, closed
from qbe.types import Paper, Sentence


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
    """A name and queries with at most ``each`` candidates, ``pairs`` pairs in all where there are enough.

    Queries are spaced evenly over the topics of CSFCube below QBE_DATA, or of the embedded sample. Candidates
    are the query's pool, then other papers of the collection. The collection is converted into ``folder``.
    """
    from qbe.corpus import read_jsonl
    from qbe.datasets.csfcube import convert
    from qbe.datasets.sample import copy_sample
    from qbe.runs import read_pools, read_topics

    if os.environ.get("QBE_DATA"):
        name = "CSFCube"
        convert(Path(os.environ["QBE_DATA"]) / "csfcube", folder)
    else:
        name = "the embedded sample"
        copy_sample(folder)
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
    """The task with texts cut, between words, to the default token budgets, so that no reader cuts more.

    Of the query's paper only the sentences of the aspect are left.
    """
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

    from qbe.models.folders import BASE_ENCODER, ENCODERS, packaged_weights

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity(logging.ERROR)  # it would warn that the head is new, as meant here
    source = packaged_weights(ENCODERS[BASE_ENCODER])
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
    """The sentences that fit into so many tokens, the last one cut at a space."""
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
