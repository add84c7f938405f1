"""Tiny joint grades with fixed random weights, and the sample's graded pairs for training."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from qbe.models.cards import JOINT_MODEL, TOKENIZER, JointCard, write_card
from qbe.models.export.encoder import export_joint
from qbe.models.folders import MINILM, packaged_weights
from qbe.runs import GradedPair, read_topics
from qbe.train.fit import copied
from qbe.train.joint import HEAD, JointNetwork, grades_of, head_scores
from qbe.types import Facet
from qbe.util.files import sha256
from support.layout import SAMPLE, grade, pool, read_layout
from support.tiny import Sizes, write_weights

HIDDEN, LAYERS, HEADS, INNER, MAX_TOKENS = 32, 3, 2, 64, 160


def write_bert(folder: Path, seed: int = 0, positions: int = MAX_TOKENS) -> None:
    """Write a BERT as Hugging Face lays it out, which reads with the packaged encoder's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    packaged = packaged_weights(MINILM)
    shutil.copyfile(packaged / TOKENIZER, folder / TOKENIZER)
    vocabulary = json.loads((packaged / "config.json").read_text())["vocab_size"]
    sizes = Sizes(vocabulary, HIDDEN, LAYERS, HEADS, INNER, positions)
    write_weights(folder, sizes, seed, pooler=False, spread=0.15, words=1.0)


def graded_lists(candidates: int = 16) -> dict[str, list[GradedPair]]:
    """The judgements of the sample: for each query paper so many of its pool, graded by all facets."""
    layout = read_layout(SAMPLE / "layout.json")
    lists = {}
    for topic in read_topics(SAMPLE / "topics.tsv"):
        query, facet = topic.paper_id, topic.facet
        # Spread evenly over the pool, sorted by grade, so that all grades are there.
        members = sorted(pool(layout, query, facet), key=lambda other: -grade(layout, query, other, facet))
        chosen = [members[place * len(members) // candidates] for place in range(candidates)]
        lists[query] = [
            GradedPair(other, tuple(float(grade(layout, query, other, each)) for each in Facet))
            for other in chosen
        ]
    return lists


def write_lists(path: Path, lists: dict[str, list[GradedPair]]) -> Path:
    rows = ["query_id\tpaper_id\t" + "\t".join(map(str, Facet))]
    rows += [
        "\t".join([query, pair.paper_id, *(f"{value:g}" for value in pair.grades)])
        for query, pairs in lists.items()
        for pair in pairs
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


def write_joint(folder: Path) -> None:
    folder.mkdir(parents=True)
    with TemporaryDirectory() as temporary:
        base = Path(temporary)
        write_bert(base, positions=512)
        weights = copied(JointNetwork(base, torch.float32))
        head = [weights[name] for name in HEAD]
        parity = export_joint(base, lambda *given: grades_of(head_scores(*given, *head)), folder)
        files = {path.name: sha256(path) for path in (folder / JOINT_MODEL, base / TOKENIZER)}
    write_card(folder, JointCard(files=files, chances=[[0.0, 1.0]] * 3, parity=parity, training={}))
