"""Training of a sentence encoder on co-citations: reading, transport, objectives, fitting, all of it."""

import contextlib
import io
import json
import math
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support import killed_encoder_fit
from support.builds import Job, build_job
from support.cocitations import (
    SENTENCES,
    planted,
    planted_pairs,
    write,
    write_bert,
)
from support.killed_encoder_fit import KEPT_AT, small_fit
from support.searching import first_stage
from torch import Tensor

from qbe.corpus import write_jsonl
from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import CorpusError, ModelError, UsageError
from qbe.files import sha256
from qbe.index.index import Index
from qbe.models import encoder_format
from qbe.models.encoder_files import resolve_encoder
from qbe.models.encoder_format import EncoderFormat
from qbe.models.registry import BASE_ENCODER
from qbe.query import Query
from qbe.rerank.transport import entropic_transport
from qbe.train import options as train_options
from qbe.train.__main__ import _encoder_recipe, main
from qbe.train.encoder import loss as encoder_loss
from qbe.train.encoder import recipe as encoder_recipe
from qbe.train.encoder.alignment import align
from qbe.train.encoder.batches import Pair, WindowTokenizer, draw_negatives
from qbe.train.encoder.cocitations import Cocitation, read_citing_sentences, read_cocitations
from qbe.train.encoder.data import hold_out
from qbe.train.encoder.fit import Fit
from qbe.train.encoder.loss import OBJECTIVES, Triplets, Vectors
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe, Schedule, Settings
from qbe.train.encoder.transport import transport
from qbe.train.fitting import Checkpoints
from qbe.train.options import parser
from qbe.train.weights import copied
from qbe.types import Paper, Sentence

NONE = TitleIndex([])

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "bert"
    write_bert(folder)
    return folder


# Files of co-citations.

LINE = {
    "citing_pids": ["7"],
    "cited_pids": ["1", "2", "3"],
    "query": {"TITLE": "First", "ABSTRACT": ["One.", "Two."]},
    "pos_context": {"TITLE": "Second", "ABSTRACT": ["Three."], "cc_align": [1, 0], "abs_align": [0, 0]},
    "citing_contexts": ["Both  (First; Second).", "Again [1, 2]."],
}


def changed(**fields) -> dict:
    return LINE | fields


def read(path: Path, evaluated: TitleIndex = NONE, **options) -> list[Cocitation]:
    return list(read_cocitations(path, evaluated, **options))


def test_reading_cocitations(tmp_path):
    third = {"TITLE": "Third", "ABSTRACT": ["Four.", " ", "Five."], "citing_contexts": ["Here."]}
    lines = [LINE, changed(query=third | {"cc_align": 1}, pos_context=third | {"cc_align": [2, 2]})]
    actual, other = read(write(tmp_path / "x.jsonl", lines), contexts=True)
    first = Paper("", "First", (Sentence("One."), Sentence("Two.")))
    cited = frozenset("123")
    contexts = ("Both (First; Second).", "Again [1, 2].")
    second = Paper("", "Second", (Sentence("Three."),))
    assert actual == Cocitation(cited, first, second, contexts, (1, 0), (0, 0))
    # A sentence of nothing is dropped, and with it positions that count it; equal papers are one.
    assert other.by_contexts is other.by_abstracts is None
    assert [sentence.text for sentence in other.query.sentences] == ["Four.", "Five."]
    assert other.query is other.positive
    path = tmp_path / "inside.jsonl"
    inside = {key: value for key, value in LINE.items() if key != "citing_contexts"}
    assert read(write(path, [inside | {"pos_context": third}]))[0].contexts == ("Here.",)


def test_papers_that_are_evaluated_on_are_dropped(tmp_path):
    heart, it = (
        {"TITLE": title, "ABSTRACT": ["x", "y"]} for title in ("THE HEART: a model of it", "A model")
    )
    lines = [changed(pos_context=other, query=query) for query in (it, heart) for other in (it, heart)]
    (actual,) = read(write(tmp_path / "x.jsonl", lines), TitleIndex(["A Model of the Heart."]))
    assert actual.query.title == actual.positive.title == "A model"


def test_reading_sentences_that_cite_the_same_papers(tmp_path):
    strings = {"cited_pids": ["8", "9"], "query": "One.", "pos_context": "Two."}
    evaluated = changed(query={"TITLE": "Evaluated", "ABSTRACT": ["x", "y"]})
    three = changed(citing_contexts=["A b.", "C d.", "E f."])
    path = write(tmp_path / "x.jsonl", [evaluated, three, LINE, strings])
    actual = list(read_citing_sentences(path, TitleIndex(["Evaluated"])))
    texts = [(pair.query.abstract, pair.positive.abstract) for pair in actual]
    assert texts == [("A b.", "C d."), ("A b.", "E f."), ("C d.", "E f."), ("One.", "Two.")]
    assert {pair.query.title for pair in actual} == {""}
    assert [pair.cited for pair in actual] == [frozenset("123")] * 3 + [frozenset("89")]


POSITIVE = LINE["pos_context"]
HOSTILE = [
    ("{", "line 2: expected one JSON object a line, found malformed JSON"),
    ("[1]", "line 2: expected a JSON object, found an array"),
    (changed(cited_pids=["1", "1"]), "the ids of two papers or more as cited_pids, found ['1', '1']"),
    (changed(cited_pids=None), "the ids of two papers or more as cited_pids, found none"),
    (changed(cited_pids=["1", None]), "the ids of two papers or more as cited_pids, found ['1', None]"),
    (changed(query=[]), "line 2, query: expected an object with TITLE and ABSTRACT, found []"),
    (changed(query="A sentence."), "expected two papers, found sentences; give a file of abstracts, or"),
    (changed(query={"ABSTRACT": ["x"]}), "line 2, query: expected a string as title, found none"),
    (changed(pos_context={"TITLE": "x"}), "line 2, pos_context: expected a list of sentences as ABSTRACT"),
    (changed(pos_context={"TITLE": "x", "ABSTRACT": [3]}), "pos_context: expected strings in the abstract"),
    (changed(pos_context={"TITLE": "x", "ABSTRACT": ["", " "]}), "expected an abstract, found an empty one"),
    (changed(query={"TITLE": "x", "ABSTRACT": ["\0"]}), "found a NUL character"),
    (changed(citing_contexts="both"), "line 2: expected sentences as citing_contexts, found 'both'"),
    (changed(citing_contexts=[]), "line 2: expected the sentences that cite both papers as citing_contexts"),
    (changed(pos_context=POSITIVE | {"cc_align": [1]}), "cc_align: expected the positions of two sentences"),
    (changed(pos_context=POSITIVE | {"cc_align": [0, 1]}), "below 2 and 1, found [0, 1]; mend it or drop"),
    (changed(pos_context=POSITIVE | {"abs_align": [0, True]}), "line 2, abs_align: expected the positions"),
]


@pytest.mark.parametrize(("line", "message"), HOSTILE)
def test_lines_that_cannot_be_read(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + (line if isinstance(line, str) else json.dumps(line)))
    with pytest.raises(CorpusError) as caught:
        read(path, contexts=True)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}, line 2")
    assert "\n" not in str(caught.value)


def test_sentences_that_cannot_be_read(tmp_path):
    for other in ("", None, 3):
        line = {"cited_pids": ["1", "2"], "query": "A sentence.", "pos_context": other}
        with pytest.raises(CorpusError, match=r"line 1: expected .*sentences as query and pos_context, foun"):
            list(read_citing_sentences(write(tmp_path / "x.jsonl", [line]), NONE))


def test_sets_are_held_out_whole():
    papers = planted_pairs(1, 0)[0][1:3]
    pairs = [Cocitation(frozenset({str(number // 3), "x"}), *papers) for number in range(180)]
    train, dev = hold_out(pairs)
    assert len({pair.cited for pair in dev}) == 3
    assert len(dev) == 9
    assert not {pair.cited for pair in dev} & {pair.cited for pair in train}
    assert len(train) == 171
    assert hold_out(pairs[::-1]) == (train[::-1], dev[::-1])


# Which sentences belong together.


def test_sentences_are_aligned_by_those_that_cite_the_papers(bert, tmp_path):
    """MiniLM never saw these words, but knows them again."""
    lines = list(planted(16, 3))
    pairs = read(write(tmp_path / "x.jsonl", [line for line, _ in lines]))
    encoder, cache = Encoder.open(), tmp_path / "cache.npy"
    planted_alignments = np.array([alignment for _, alignment in lines])
    actual = align(pairs, "contexts", encoder, lambda _: SENTENCES, cache=cache)
    assert np.mean(np.array(actual) == planted_alignments) >= 0.9  # found: 0.98; chance 0.33
    assert align(pairs, "contexts", None, None, cache=cache) == actual
    with pytest.raises(ModelError, match=r"cache\.npy: expected the alignments of this training's 15 pairs"):
        align(pairs[1:], "contexts", None, None, cache=cache)
    # By the abstracts alone it is found where both sentences have words of the same half.
    direct = align(pairs, "abstracts", encoder, lambda _: SENTENCES)
    assert np.mean(np.all(np.array(direct) == planted_alignments, 1)) >= 0.4  # found: 0.53; chance 0.11


def test_alignments_that_came_along_are_taken_where_they_lie_within(tmp_path):
    ((line, _),) = planted(1, 3)
    line["pos_context"] |= {"cc_align": [0, 2], "abs_align": [2, 0]}
    pairs = read(write(tmp_path / "x.jsonl", [line]))
    encoder = Encoder.open()
    assert align(pairs, "contexts", encoder, lambda _: 3) == [(0, 2)]
    assert align(pairs, "abstracts", encoder, lambda _: 3) == [(2, 0)]
    assert align(pairs, "contexts", encoder, lambda _: 1) == [(0, 0)]
    pairs[0] = pairs[0]._replace(contexts=(pairs[0].query.sentences[1].text,))
    assert align(pairs, "contexts", encoder, lambda _: 3, use_given=False)[0][0] == 1


# Transport.


def problem(pairs: int, rows: int, columns: int, extent: float) -> tuple[Tensor, Tensor, Tensor]:
    """Costs and logarithms of masses in double precision, the last pair with padding."""
    rng = torch.Generator().manual_seed(pairs)
    costs = extent * torch.rand(pairs, rows, columns, generator=rng, dtype=torch.float64)
    masses = [torch.randn(pairs, size, generator=rng, dtype=torch.float64) for size in (rows, columns)]
    for part in masses:
        part[-1, -1] = -math.inf
    return costs, *(torch.log_softmax(part, 1) for part in masses)


@pytest.mark.parametrize("extent", [0.5, 2, 30])
def test_the_gradient_of_transport_is_its_plan(extent):
    costs, rows, columns = problem(5, 4, 6, extent)
    costs.requires_grad_()
    value = transport(costs, rows, columns, 20, 1e-12, 20000)
    (plan,) = torch.autograd.grad(value.sum(), costs)
    expected = entropic_transport(
        costs.detach().numpy(), rows.exp().numpy(), columns.exp().numpy(), 20, 1e-12, 20000
    )
    np.testing.assert_allclose(plan.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(plan.sum(2), rows.exp(), atol=1e-9)
    np.testing.assert_allclose(plan.sum(1), columns.exp(), atol=1e-9)
    apart = rows.exp()[:, :, None] * columns.exp()[:, None]
    divergence = torch.special.xlogy(plan, plan).sum((1, 2)) - torch.special.xlogy(plan, apart).sum((1, 2))
    expected = (plan * costs.detach()).sum((1, 2)) + divergence / 20
    np.testing.assert_allclose(value.detach(), expected, rtol=1e-8)


def test_gradients_of_transport_are_those_of_its_value():
    """With respect to costs and masses together, which depend on the distances as in OTASPIRE."""
    costs, *_ = problem(2, 2, 3, 1)
    present = torch.ones(2, 3, dtype=torch.bool)
    present[1, 2] = False

    def value(distances: Tensor) -> Tensor:
        apart = distances.masked_fill(~present[:, None], math.inf)
        rows, columns = (torch.log_softmax(-apart.amin(along) / 0.5, 1) for along in (2, 1))
        return transport(distances, rows, columns, 5, 1e-13, 20000)

    assert torch.autograd.gradcheck(value, costs.requires_grad_(), atol=1e-6)


def test_large_costs_and_no_costs_are_transported():
    costs = torch.tensor([[[0.0, 30.0], [30.0, 0.0]]], requires_grad=True)
    half = torch.full((1, 2), math.log(0.5))
    value = transport(costs, half, half)
    value.backward()
    assert value.item() == pytest.approx(math.log(2) / 20)  # the divergence of a plan without cost
    np.testing.assert_allclose(costs.grad[0], [[0.5, 0], [0, 0.5]], atol=1e-6)
    assert transport(torch.zeros(1, 2, 2), half, half).item() == pytest.approx(0, abs=1e-9)


# Objectives.


def vectors(*papers: list[list[float]]) -> Vectors:
    """Papers of sentences of two dimensions; the whole is their mean."""
    most = max(map(len, papers))
    padded = [[*sentences, *[[99.0, 99.0]] * (most - len(sentences))] for sentences in papers]
    present = [[place < len(sentences) for place in range(most)] for sentences in papers]
    whole = [np.mean(sentences, axis=0).tolist() for sentences in papers]
    return Vectors(torch.tensor(padded), torch.tensor(present), torch.tensor(whole))


QUERY, ONE, TWO = [[0.0, 0.0], [4.0, 0.0]], [[0.0, 3.0]], [[0.0, 4.0], [4.0, 2.0]]
TRIPLETS = Triplets(
    vectors(QUERY, QUERY),
    vectors(ONE, TWO),
    vectors(TWO, ONE),
    torch.tensor([[1, 0], [1, 1]]),
    torch.tensor([1, 0]),
)


def attended(*distances: float) -> float:
    weights = np.exp(-np.array(distances))
    return float(weights @ distances / weights.sum())


BY_HAND = {
    "bi-encoder": (math.sqrt(13), 3),
    "ts": (5, 2),
    # Halves go from 0, 0 and 4, 0 to 0, 3; or one to 0, 4 and one to 4, 2, a plan that is not independent.
    "ot": ((3 + 5) / 2, (4 + 2) / 2 + math.log(2) / 20),
    "abs": (5, 2),
    "max": (3, 2),
    "att": (attended(3, 5), attended(4, math.sqrt(20), math.sqrt(32), 2)),
    "cosent": (math.sqrt(13), 3),
}
"""Distances of QUERY from ONE and from TWO."""


def test_objectives_are_margins_of_distances_worked_by_hand():
    settings = Settings(margin=1.5)
    actual = {name: OBJECTIVES[name](TRIPLETS, settings).tolist() for name in OBJECTIVES}
    for name, (near, far) in BY_HAND.items():
        # With a tau of 5000 masses are nearly halves.
        assert actual[name] == pytest.approx([max(0, 1.5 + near - far), max(0, 1.5 + far - near)], abs=1e-3)
    assert actual["ts+ot"] == pytest.approx(np.add(actual["ts"], actual["ot"]))
    assert actual.keys() == {*BY_HAND, "ts+ot"} == encoder_recipe.OBJECTIVES.keys()


def test_a_low_temperature_moves_mass_to_what_is_near():
    """Of 0, 0 and 4, 0 against 0, 4 and 4, 2 all goes from 4, 0 to 4, 2."""
    query, other = vectors(QUERY), vectors(TWO)
    assert encoder_loss.transport_cost(query, other, Settings(temperature=0.05)).item() == pytest.approx(2)


def test_equal_papers_leave_gradients_finite():
    ours, theirs = (torch.tensor([QUERY, QUERY]).requires_grad_() for _ in range(2))
    present, alignment = torch.tensor([[True, True], [True, False]]), torch.zeros(2, 2, dtype=torch.int64)
    for name, objective in OBJECTIVES.items():
        query, positive = (Vectors(part, present, part.mean(1)) for part in (ours, theirs))
        lost = objective(Triplets(query, positive, query, alignment, alignment[:, 0]), Settings())
        gradients = torch.autograd.grad(lost.sum(), [ours, theirs])
        assert all(part.isfinite().all() for part in gradients), name


def test_negatives_are_of_other_sets():
    def pair(*cited: str) -> Pair:
        return Pair(frozenset(cited), *planted_pairs(1, 0)[0][1:3])

    pairs = [pair("a", "b"), pair("b", "c"), pair("d", "e")]
    drawn = {tuple(draw_negatives(pairs, random.Random(seed))) for seed in range(20)}
    assert drawn == {((0, 2), (1, 2), (2, 0)), ((0, 2), (1, 2), (2, 1))}
    assert draw_negatives(pairs[:2], random.Random(0)) == []


# Fitting.

# Objective: epochs, and how much better than untrained planted alignments are recovered at least. Found: from
# 0.54 to 0.79 with the bi-encoder (by chance 0.5), from 0.49 to what stands behind with the others (0.11).
LEARNS = {
    "bi-encoder": (4, 0.15),
    "ts": (2, 0.15),  # 0.79
    "ot": (4, 0.1),  # 0.75
    "ts+ot": (2, 0.15),  # 0.82
    "abs": (2, 0.15),  # 0.79
    "max": (6, 0.08),  # 0.77
    "att": (3, 0.08),  # 0.70
    "cosent": (2, 0.08),  # 0.61
}


@torch.no_grad()
def recovered(
    network: EncoderNetwork, tokenizer: WindowTokenizer, pairs: list[Pair], objective: str
) -> float:
    """The share of pairs whose closest sentences are those that are planted to belong together.

    Of a bi-encoder, which has no sentences, the share of other papers farther than that cited beside.
    """
    network.eval()
    papers = [each for pair in pairs for each in pair[1:3]]
    actual = network([tokenizer.window(paper) for paper in papers])
    if objective == "bi-encoder":
        distances = torch.cdist(actual.whole[::2], actual.whole[1::2])
        return float((distances > distances.diag()[:, None]).sum() / (len(pairs) * (len(pairs) - 1)))
    distances = torch.cdist(actual.sentences[::2], actual.sentences[1::2]).flatten(1)
    best = [divmod(int(row.argmin()), SENTENCES) for row in distances]
    return float(np.mean([place == pair.alignment for place, pair in zip(best, pairs, strict=True)]))


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> tuple[dict[bool, list[Pair]], ...]:
    """Pairs to learn from and to choose on, of papers (False) and of sentences that cite them (True)."""
    folder, parts = tmp_path_factory.mktemp("sets"), []
    for name, (count, seed) in {"train": (320, 1), "dev": (80, 2)}.items():
        path = write(folder / f"{name}.jsonl", [line for line, _ in planted(count, seed)])
        citing = [Pair(*pair[:3]) for pair in read_citing_sentences(path, NONE)]
        parts.append({False: planted_pairs(count, seed), True: citing})
    return tuple(parts)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_objective_learns_which_sentences_belong_together(bert, sets, tmp_path, name):
    tokenizer, (train, dev) = WindowTokenizer(PaperTokenizer(bert / "tokenizer.json"), 128), sets
    sentences = encoder_recipe.OBJECTIVES[name].sentences
    (epochs, gain), others = LEARNS[name], planted_pairs(200, 3)
    schedule = Schedule(epochs=epochs, batch=32, accumulate=1, learning_rate=3e-2)
    network = EncoderNetwork(bert)
    fit = Fit(network, tokenizer, Recipe(name, schedule=schedule))
    before, untrained = fit.loss(dev[sentences]), recovered(network, tokenizer, others, name)
    progress = fit.run(train[sentences], dev[sentences], 0, Checkpoints(tmp_path / "checkpoint.pt"))
    after, trained = fit.loss(dev[sentences]), recovered(network, tokenizer, others, name)
    assert after == pytest.approx(-max(progress.dev))
    assert after < 0.85 * before
    assert trained >= untrained + gain


# Checkpoints.


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def uninterrupted(request, bert, tmp_path_factory):
    """The network and the progress of a small fit that nothing stopped, its checkpoint, its precision."""
    checkpoint = tmp_path_factory.mktemp("fit") / "checkpoint.pt"
    return *small_fit(bert, checkpoint, request.param), checkpoint, request.param


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(part, second[name]) for name, part in first.items()
    )


def alike(first: Path, second: Path) -> bool:
    """Whether two checkpoints hold the same numbers to the last bit."""
    ours, theirs = (torch.load(path, weights_only=True) for path in (first, second))
    parts = [same(ours[kind], theirs[kind]) for kind in ("network", "best")]
    parts += [
        same(state, theirs["optimizer"]["state"][number])
        for number, state in ours["optimizer"]["state"].items()
    ]
    return all(parts) and all(ours[name] == theirs[name] for name in ("step", "dev"))


def test_an_interrupted_fit_ends_in_the_same_weights(bert, uninterrupted, tmp_path):
    network, progress, whole, kind = uninterrupted
    assert progress.step == KEPT_AT[-1]
    checkpoint = tmp_path / "checkpoint.pt"
    for steps, more in ((1, 1), (6, 5)):  # within the first epoch; at the end of the second
        _, actual = small_fit(bert, checkpoint, kind, stop_after=more)
        assert actual.step == steps
        assert not alike(checkpoint, whole)
    again, actual = small_fit(bert, checkpoint, kind)
    assert actual == progress
    assert same(copied(again), copied(network))
    assert alike(checkpoint, whole)


def test_a_killed_fit_ends_in_the_same_weights(bert, tmp_path):
    whole, checkpoint = tmp_path / "whole.pt", tmp_path / "checkpoint.pt"
    network, progress = small_fit(bert, whole)
    command = [sys.executable, killed_encoder_fit.__file__, bert, checkpoint]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert torch.load(checkpoint, weights_only=True)["step"] == 4
    assert len([*tmp_path.glob(".checkpoint.pt.*.partial")]) == 1
    again, actual = small_fit(bert, checkpoint)
    assert actual == progress
    assert same(copied(again), copied(network))
    assert alike(checkpoint, whole)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.pt", "whole.pt"}


def test_a_finished_fit_is_not_done_again(bert, uninterrupted, monkeypatch):
    network, progress, checkpoint, kind = uninterrupted

    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    again, actual = small_fit(bert, checkpoint, kind)
    assert actual == progress
    assert same(copied(again), copied(network))


def test_what_is_random_in_a_fit_follows_from_its_seed(bert):
    """The tests above mean something: without the seed dropout differs from call to call."""
    tokenizer, (pair,) = WindowTokenizer(PaperTokenizer(bert / "tokenizer.json"), 128), planted_pairs(1, 0)
    network, windows = EncoderNetwork(bert).train(), [tokenizer.window(pair.query)]
    torch.manual_seed(1)
    first, second = network(windows).whole, network(windows).whole
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(network(windows).whole, first)


def test_a_loss_that_is_no_number_ends_it(bert, tmp_path):
    pairs = planted_pairs(8, 0)
    settings = Settings(margin=3e38)  # the sum over a batch overflows
    tokenizer = WindowTokenizer(PaperTokenizer(bert / "tokenizer.json"), 128)
    fit = Fit(EncoderNetwork(bert), tokenizer, Recipe("max", settings=settings))
    with pytest.raises(
        ModelError, match=r"seed 0, step 1: expected a loss that is a number, found inf; lower"
    ):
        fit.run(pairs, pairs, 0, Checkpoints(tmp_path / "checkpoint.pt"))
    assert not any(tmp_path.iterdir())


# The whole of it, by the command.


def arguments(folder: Path, bert: Path, **other: object) -> list[str]:
    options = {
        "cocitations": folder / "train.jsonl",
        "dev": folder / "dev.jsonl",
        "leave-out": folder / "evaluated.jsonl",
        "output": folder / "trained",
        "work": folder / "work",
        "encoder": bert,
        "objective": "ts+ot",
        "batch": 8,
        "accumulate": 2,
        "learning-rate": 0.01,
        "seeds": "0,1",
        "threads": 1,
    } | {name.replace("_", "-"): value for name, value in other.items()}
    pairs = [[f"--{name}", str(value)] for name, value in options.items() if value is not None]
    return ["encoder", *(part for option in pairs for part in option)]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A folder with files to learn from and to choose on, and a paper that is evaluated on.

    Most lines bring their alignments along; four pairs have a paper with the evaluated one's title.
    """
    folder = tmp_path_factory.mktemp("files")
    for name, count, seed in (("train", 60, 1), ("dev", 20, 2)):
        lines = [
            line | {"pos_context": line["pos_context"] | {"cc_align": alignment}}
            for line, alignment in planted(count, seed)
        ]
        del lines[0]["pos_context"]["cc_align"]
        for number, line in enumerate(lines[:4]):
            line[("query", "pos_context")[number % 2]]["TITLE"] = "What is evaluated on"
        write(folder / f"{name}.jsonl", lines)
    with (folder / "evaluated.jsonl").open("wb") as stream:
        write_jsonl([Paper("1", "What IS evaluated on?", (Sentence("x"),))], stream)
    return folder


@pytest.fixture(scope="module")
def trained(files, bert) -> Path:
    """The folder of a trained encoder; what the command printed stands in ``printed`` beside it."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(arguments(files, bert))
    (files / "printed").write_text(printed.getvalue())
    return files / "trained"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_command_ends_in_a_folder_that_says_how_it_came_about(trained, files, bert):
    source = {"config.json", "model.safetensors", "tokenizer.json"}
    assert names(trained) == source | {"encoder.json", "model.fp32.onnx", "model.int8.onnx", "README.md"}
    work = {
        "aligned-train.npy",
        "aligned-dev.npy",
        "made-from.json",
        "seed-0.pt",
        "seed-1.pt",
        "tokenizer.json",
    }
    assert names(files / "work") == work
    card = resolve_encoder(str(trained)).metadata
    assert card.weights_sha256 == sha256(trained / "model.safetensors")
    assert card.encoder_format == EncoderFormat(layout="title-sep-abstract", similarity="l2")
    assert (trained / "tokenizer.json").read_bytes() == (bert / "tokenizer.json").read_bytes()
    kept = [torch.load(files / "work" / f"seed-{seed}.pt", weights_only=True) for seed in (0, 1)]
    text = " ".join((trained / "README.md").read_text().split())
    published = text.partition("Published: ")[2].partition(", the lowest")[0]
    weights = {name: (part + kept[1]["best"][name]) / 2 for name, part in kept[0]["best"].items()}
    weights = {"seed 0": kept[0]["best"], "seed 1": kept[1]["best"], "mean": weights}[published]
    actual = load_file(trained / "model.safetensors")
    for name, part in weights.items():
        torch.testing.assert_close(actual[name.removeprefix("bert.")], part, rtol=0, atol=0)
    for number in (0, 1):
        assert f"| seed {number} | {-kept[number]['dev'][0]:.4f} |" in text
    for path in ("train.jsonl", "dev.jsonl", "evaluated.jsonl"):
        assert f"{files.name}/{path}: SHA-256 {sha256(files / path)}" in text
    assert "56 pairs in training, 16 in dev" in text
    assert "`ts+ot` (TS+OTASPIRE" in text
    assert f"int8 | {card.parity['int8']['max_abs_difference']:.2g} |" in text
    printed = (files / "printed").read_text()
    assert printed.startswith(f"{trained}: ts+ot, loss on dev ")
    assert printed.count("\n") == 1


def test_the_network_reads_as_the_library_does(trained):
    """Papers of several lengths in one batch, against the exported encoder, paper by paper."""
    encoder = Encoder(resolve_encoder(str(trained), "fp32"))
    papers = [
        Paper("x", pair.query.title, (*pair.query.sentences, *pair.positive.sentences)[:count])
        for count, pair in enumerate(planted_pairs(6, 9), 1)
    ]
    tokenizer = WindowTokenizer(encoder.tokenizer, 128, encoder.files.metadata.encoder_format.layout)
    with torch.no_grad():
        actual = EncoderNetwork(trained).eval()([tokenizer.window(paper) for paper in papers])
    assert actual.present.sum(1).tolist() == [1, 2, 3, 4, 5, 6]
    for number, expected in enumerate(encoder.encode(papers)):
        ours = actual.sentences[number][actual.present[number]]
        np.testing.assert_allclose(ours, expected.sentences, atol=2e-3)  # those are of half precision
        np.testing.assert_allclose(actual.whole[number], expected.whole, atol=2e-3)


def test_an_index_takes_the_trained_encoder(trained, sample, tmp_path):
    settings = Job(corpus=(str(sample / "corpus.jsonl"),), bm25=False, encoder=str(trained))
    manifest = build_job(tmp_path / "index", settings)
    assert manifest.corpus["papers"] == 128
    with Index(tmp_path / "index") as index:
        hits = first_stage(index, "dense").search(Query(index.paper("s036")), 5)
        assert len(hits) == 5


def test_a_work_folder_serves_one_training(trained, files, bert, tmp_path):
    for other in ({"margin": 2}, {"objective": "ts"}, {"dev": None}, {"similarity": "cosine"}):
        with pytest.raises(ModelError, match="work: expected parts of the same recipe and data, found those"):
            main(arguments(files, bert, **other, output=tmp_path / "out"))
    assert not any(tmp_path.iterdir())


USAGE = [
    ({"epochs": 0}, "expected `epochs` of at least 1, found 0"),
    ({"batch": 1}, "expected `batch` of at least 2, found 1"),
    ({"accumulate": 0}, "expected `accumulate` of at least 1, found 0"),
    ({"learning_rate": 0}, "expected `learning_rate` above 0, found 0"),
    ({"margin": "nan"}, "expected `margin` above 0, found nan"),
    ({"temperature": -1}, "expected `temperature` above 0, found -1"),
    ({"warm_up": 1}, "expected `warm_up` of at least 0 and below 1, found 1"),
    ({"objective": "max", "temperature": 5}, "expected no `temperature` with `objective` max, which does"),
    (
        {"objective": "ts", "regularization": 5},
        "expected no `regularization` with `objective` ts, which does",
    ),
    (
        {"objective": "cosent", "layout": "title-abstract"},
        "expected no `layout` with `objective` cosent, which",
    ),
    ({"objective": "ot", "aligner": "x"}, "expected no `aligner` with `objective` ot, which does not use"),
    ({"leave_out": None}, "expected `leave_out`, or QBE_DATA set to a folder that holds csfcube/"),
]


@pytest.mark.parametrize(("options", "message"), USAGE)
def test_usage_errors_of_the_command(files, bert, monkeypatch, options, message):
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(UsageError, match=message):
        main(arguments(files, bert, **options))


def test_data_and_models_that_are_unfit(files, bert, tmp_path):
    places = {"output": tmp_path / "out", "work": tmp_path / "work"}
    (tmp_path / "few.jsonl").write_text((files / "train.jsonl").read_text().splitlines()[0])
    for options, error, message in (
        (
            {"encoder": tmp_path},
            ModelError,
            "found no config.json, model.safetensors or pytorch_model.bin, token",
        ),
        (
            {"encoder": "nosuch"},
            ModelError,
            "a model to start from, found none of that name: 'nosuch'; check",
        ),
        ({"cocitations": tmp_path / "none"}, CorpusError, "cannot read .*none: No such file"),
        (
            {"dev": tmp_path / "few.jsonl"},
            CorpusError,
            r"few\.jsonl: expected co-citations of papers that are not",
        ),
        (
            {"objective": "cosent", "dev": files / "evaluated.jsonl"},
            CorpusError,
            "line 1: expected the ids of",
        ),
    ):
        with pytest.raises(error, match=message):
            main(arguments(files, bert, **places, **options))
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
    assert not (tmp_path / "out").exists()
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="expected a GPU that torch sees for `device` cuda, found none"):
            main(arguments(files, bert, device="cuda"))


def test_recipes_of_the_command():
    options = parser().parse_args(arguments(Path(), Path(), objective="att", learning_rate=None))
    schedule = Schedule(batch=8, accumulate=2, learning_rate=2e-5)
    assert _encoder_recipe(options) == Recipe("att", schedule=schedule)
    line = ["encoder", "--cocitations", "a", "b", "--output", "c", "--work", "d"]
    options = parser().parse_args(line)
    assert _encoder_recipe(options) == Recipe(schedule=Schedule(learning_rate=3e-5))
    assert options.cocitations == ["a", "b"]
    options = parser().parse_args(
        [*line, "--layout=title-abstract", "--temperature=5", "--regularization=2", "--similarity=cosine"]
    )
    settings = Settings(temperature=5, regularization=2, similarity="cosine")
    assert _encoder_recipe(options).settings == settings
    assert _encoder_recipe(options).layout == "title-abstract"


def test_choices_and_defaults_of_the_command_are_those_of_its_modules():
    """They are written out in the options, which may not load the modules for the help."""
    line = ["encoder", "--cocitations", "a", "--output", "c", "--work", "d"]
    options, recipe = parser().parse_args(line), Recipe()
    assert options.encoder == BASE_ENCODER
    assert options.objective == recipe.objective
    assert {name: getattr(options, name) for name in ("margin", "similarity")} == {
        "margin": recipe.settings.margin,
        "similarity": recipe.settings.similarity,
    }
    for name in ("batch", "accumulate", "epochs", "warm_up"):
        assert getattr(options, name) == getattr(recipe.schedule, name)
    assert tuple(encoder_recipe.OBJECTIVES) == train_options.OBJECTIVES
    assert encoder_recipe.LAYOUTS == train_options.LAYOUTS
    assert encoder_format.SIMILARITIES == train_options.SIMILARITIES
    text = " ".join(command_help("encoder").split())
    assert all(objective.name in text for objective in encoder_recipe.OBJECTIVES.values())
    assert f"(ot, ts+ot; default: {recipe.settings.temperature:g})" in text
    assert f"(ot, ts+ot; default: {recipe.settings.regularization:g})" in text
    assert f"(default: {recipe.layout})" in text
    rates = {name: objective.rate for name, objective in encoder_recipe.OBJECTIVES.items()}
    assert {name for name, rate in rates.items() if rate == 3e-5} == {"ot", "abs", "max"}
    assert "default: 2e-5; 3e-5 for ot, abs and max" in text
    assert set(rates.values()) == {2e-5, 3e-5}


def command_help(name: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        parser().parse_args([name, "--help"])
    return printed.getvalue()
