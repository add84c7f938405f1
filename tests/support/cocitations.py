"""A toy collection of co-citations, in which it is known which sentences are aligned.

There are aspects, each with words of its own. A paper has a sentence about each of a few of them; two papers
that are cited together share exactly one, which the sentence that cites them names. An aspect's words come
in two halves, so that two sentences about it need not share a word: their alignment has to be learned.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.numpy import load_file, save_file

from qbe.train.cocitations import Pair
from qbe.types import Paper, Sentence
from support.tiny import write_model

ASPECTS, CITED_FOR, SENTENCES = 30, 8, 3
"""How many aspects there are, for how many papers are cited, and about how many a paper is."""

HALF, FILLERS = 2, 10
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


def _words() -> list[str]:
    rng = random.Random(1)
    words: dict[str, None] = {}
    while len(words) < ASPECTS * 2 * HALF + FILLERS:
        words["".join(rng.sample(_SYLLABLES, 3))] = None
    return list(words)


WORDS = _words()


class Planted(NamedTuple):
    line: dict[str, Any]
    alignment: tuple[int, int]


def aspect(number: int) -> list[str]:
    return WORDS[number * 2 * HALF : (number + 1) * 2 * HALF]


def sentence(number: int, rng: random.Random) -> str:
    first = HALF * rng.randrange(2)
    return " ".join(rng.choices(aspect(number)[first : first + HALF], k=3)).capitalize() + "."


def paper(shared: int, others: list[int], rng: random.Random) -> tuple[dict[str, Any], int]:
    """A paper of the form of the files, and where its sentence about the shared aspect stands."""
    order = [shared, *others]
    rng.shuffle(order)
    title = rng.choice(WORDS[-FILLERS:]).capitalize()
    return {"TITLE": title, "ABSTRACT": [sentence(each, rng) for each in order]}, order.index(shared)


def planted(count: int, seed: int) -> Iterator[Planted]:
    """So many pairs, each of two papers that are in no other."""
    rng = random.Random(seed)
    for number in range(count):
        shared = rng.randrange(CITED_FOR)
        others = rng.sample(range(CITED_FOR, ASPECTS), 2 * SENTENCES - 2)
        query, first = paper(shared, others[: SENTENCES - 1], rng)
        positive, second = paper(shared, others[SENTENCES - 1 :], rng)
        line = {
            "citing_pids": [f"c{number}", f"d{number}"],
            "cited_pids": [f"{seed}-{number}a", f"{seed}-{number}b"],
            "query": query,
            "pos_context": positive,
            "citing_contexts": [" ".join(aspect(shared)).capitalize() + ".", sentence(shared, rng)],
        }
        yield Planted(line, (first, second))


def planted_pairs(count: int, seed: int) -> list[Pair]:
    def as_paper(record: dict[str, Any]) -> Paper:
        return Paper("", record["TITLE"], tuple(map(Sentence, record["ABSTRACT"])))

    return [
        Pair(frozenset(line["cited_pids"]), as_paper(line["query"]), as_paper(line["pos_context"]), alignment)
        for line, alignment in planted(count, seed)
    ]


def write_bert(folder: Path) -> None:
    """A tiny BERT of one layer that knows the words, and tells them apart from the start."""
    write_model(folder, [" ".join(WORDS)])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    weights = load_file(folder / "model.safetensors")
    weights = {name: part for name, part in weights.items() if not name.startswith("encoder.layer.1.")}
    for name, part in weights.items():
        if not name.endswith("LayerNorm.weight"):
            part *= 3 if "word_embeddings" in name else 0.3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
