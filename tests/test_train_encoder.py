"""Training of a sentence encoder on co-citations: reading, transport, objectives, fitting, all of it."""

import json
import math
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.builds import Job, build_job
from support.cocitations import (
    SENTENCES,
    planted,
    planted_pairs,
    write,
    write_bert,
)
from support.searching import first_stage
from support.trainings import encoder
from torch import Tensor

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
from qbe.train.__main__ import main
from qbe.train.artifacts import Folders, RunOptions
from qbe.train.encoder import loss as encoder_loss
from qbe.train.encoder import recipe as encoder_recipe
from qbe.train.encoder.cocitations import Cocitation, read_citing_sentences, read_cocitations
from qbe.train.encoder.data import Pair, align, hold_out
from qbe.train.encoder.fit import EncoderTask, WindowTokenizer, draw_negatives
from qbe.train.encoder.loss import Triplets, Vectors, losses, transport
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import Recipe, Settings
from qbe.train.encoder.training import TrainedEncoder
from qbe.train.options import parser
from qbe.train.trainer import Checkpoints, Schedule, fit
from qbe.types import Paper, Sentence

NONE = TitleIndex([])

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


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
    aligner, cache = Encoder.open(), tmp_path / "cache.npz"
    planted_alignments = np.array([alignment for _, alignment in lines])
    actual = align(pairs, "contexts", aligner, lambda _: SENTENCES, cache)
    positions = np.array([pair.alignment for pair in actual])
    assert np.mean(positions == planted_alignments) >= 0.9  # found: 0.98; chance 0.33
    assert align(pairs, "contexts", None, None, cache) == actual
    with pytest.raises(ModelError, match=r"cache\.npz: expected the alignments of 15 pairs"):
        align(pairs[1:], "contexts", None, None, cache)
    # By the abstracts alone it is found where both sentences have words of the same half.
    direct = align(pairs, "abstracts", aligner, lambda _: SENTENCES, tmp_path / "direct.npz")
    positions = np.array([pair.alignment for pair in direct])
    assert np.mean(np.all(positions == planted_alignments, 1)) >= 0.4  # found: 0.53; chance 0.11


def test_alignments_in_the_data_are_used_where_both_positions_fit(tmp_path):
    ((line, _),) = planted(1, 3)
    line["pos_context"] |= {"cc_align": [0, 2], "abs_align": [2, 0]}
    pairs = read(write(tmp_path / "x.jsonl", [line]))
    aligner = Encoder.open()
    for number, (by, sizes, expected) in enumerate(
        [("contexts", 3, (0, 2)), ("abstracts", 3, (2, 0)), ("contexts", 1, (0, 0))]
    ):
        (pair,) = align(pairs, by, aligner, lambda _, sizes=sizes: sizes, tmp_path / f"{number}.npz")
        assert pair.alignment == expected


# Transport.


def problem(pairs: int, rows: int, columns: int, extent: float) -> tuple[Tensor, Tensor, Tensor]:
    """Costs and logarithms of masses in double precision, the last pair with padding."""
    rng = torch.Generator().manual_seed(pairs)
    costs = extent * torch.rand(pairs, rows, columns, generator=rng, dtype=torch.float64)
    masses = [torch.randn(pairs, size, generator=rng, dtype=torch.float64) for size in (rows, columns)]
    for part in masses:
        part[-1, -1] = -math.inf
    return costs, torch.log_softmax(masses[0], 1), torch.log_softmax(masses[1], 1)


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
    actual = {name: losses(name, TRIPLETS, settings).tolist() for name in encoder_recipe.OBJECTIVES}
    for name, (near, far) in BY_HAND.items():
        # With a tau of 5000 masses are nearly halves.
        assert actual[name] == pytest.approx([max(0, 1.5 + near - far), max(0, 1.5 + far - near)], abs=1e-3)
    assert actual["ts+ot"] == pytest.approx(np.add(actual["ts"], actual["ot"]))
    assert actual.keys() == {*BY_HAND, "ts+ot"}


def test_a_low_temperature_moves_mass_to_what_is_near():
    """Of 0, 0 and 4, 0 against 0, 4 and 4, 2 all goes from 4, 0 to 4, 2."""
    query, other = vectors(QUERY), vectors(TWO)
    assert encoder_loss.transport_cost(query, other, Settings(temperature=0.05)).item() == pytest.approx(2)


def test_equal_papers_leave_gradients_finite():
    ours, theirs = (torch.tensor([QUERY, QUERY]).requires_grad_() for _ in range(2))
    present, alignment = torch.tensor([[True, True], [True, False]]), torch.zeros(2, 2, dtype=torch.int64)
    for name in encoder_recipe.OBJECTIVES:
        query, positive = (Vectors(part, present, part.mean(1)) for part in (ours, theirs))
        lost = losses(name, Triplets(query, positive, query, alignment, alignment[:, 0]), Settings())
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


@pytest.mark.parametrize("name", encoder_recipe.OBJECTIVES)
def test_each_objective_learns_which_sentences_belong_together(bert, sets, tmp_path, name):
    tokenizer, (train, dev) = WindowTokenizer(PaperTokenizer(bert / "tokenizer.json"), 128), sets
    sentences = encoder_recipe.OBJECTIVES[name].sentences
    (epochs, gain), others = LEARNS[name], planted_pairs(200, 3)
    recipe = Recipe(name, epochs=epochs, batch=32, accumulate=1, learning_rate=3e-2)
    network = EncoderNetwork(bert)
    task = EncoderTask(network, tokenizer, recipe, train[sentences], dev[sentences])
    before, untrained = task.dev_loss(), recovered(network, tokenizer, others, name)
    schedule = Schedule(epochs, recipe.clip, recipe.patience, recipe.warm_up)
    progress = fit(task, schedule, 0, Checkpoints(tmp_path / "checkpoint.pt"))
    after, trained = task.dev_loss(), recovered(network, tokenizer, others, name)
    assert after == pytest.approx(-max(progress.dev))
    assert after < 0.85 * before
    assert trained >= untrained + gain


# The whole of it.


@pytest.fixture(scope="module")
def toy_training(request):
    return encoder(request)


@pytest.fixture(scope="module")
def trained(toy_training, tmp_path_factory) -> tuple[Folders, TrainedEncoder]:
    """The folders of a trained encoder, and what the training returned."""
    folder = tmp_path_factory.mktemp("trained")
    folders = Folders(folder / "trained", folder / "work")
    return folders, toy_training.train(folders, RunOptions((0, 1)))


def test_what_is_published_is_the_best_of_the_seeds_and_their_mean(trained, toy_training):
    folders, result = trained
    files = {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    files |= {"encoder.json", "model.fp32.onnx", "model.int8.onnx"}
    assert {path.name for path in folders.output.iterdir()} == files
    card = resolve_encoder(str(folders.output)).metadata
    assert card.weights_sha256 == sha256(folders.output / "model.safetensors")
    assert card.encoder_format == EncoderFormat(layout="title-sep-abstract", similarity="l2")
    kept = [torch.load(folders.work / f"seed-{seed}.pt", weights_only=True) for seed in (0, 1)]
    text = " ".join((folders.output / "README.md").read_text().split())
    published = text.partition("Published: ")[2].partition(".")[0]
    losses = {name: float(loss) for name, loss in re.findall(r"\| (seed \d|mean) \| ([\d.]+)", text)}
    assert published == min(losses, key=losses.__getitem__)
    assert result.after == pytest.approx(losses[published], abs=1e-4)
    for number in (0, 1):
        assert losses[f"seed {number}"] == pytest.approx(-max(kept[number]["dev"]), abs=1e-4)
    weights = {name: (part + kept[1]["best"][name]) / 2 for name, part in kept[0]["best"].items()}
    weights = {"seed 0": kept[0]["best"], "seed 1": kept[1]["best"], "mean": weights}[published]
    actual = load_file(folders.output / "model.safetensors")
    for name, part in weights.items():
        torch.testing.assert_close(actual[name.removeprefix("bert.")], part, rtol=0, atol=0)
    assert "56 co-cited pairs" in text  # of 60, four have a paper that is evaluated on
    assert "16 pairs of dev" in text


def test_the_network_reads_as_the_library_does(trained):
    """Papers of several lengths in one batch, against the exported encoder, paper by paper."""
    exported = Encoder(resolve_encoder(str(trained[0].output), "fp32"))
    papers = [
        Paper("x", pair.query.title, (*pair.query.sentences, *pair.positive.sentences)[:count])
        for count, pair in enumerate(planted_pairs(6, 9), 1)
    ]
    tokenizer = WindowTokenizer(exported.tokenizer, 128, exported.files.metadata.encoder_format.layout)
    with torch.no_grad():
        actual = EncoderNetwork(trained[0].output).eval()([tokenizer.window(paper) for paper in papers])
    assert actual.present.sum(1).tolist() == [1, 2, 3, 4, 5, 6]
    for number, expected in enumerate(exported.encode(papers)):
        ours = actual.sentences[number][actual.present[number]]
        np.testing.assert_allclose(ours, expected.sentences, atol=2e-3)  # those are of half precision
        np.testing.assert_allclose(actual.whole[number], expected.whole, atol=2e-3)


def test_an_index_takes_the_trained_encoder(trained, sample, tmp_path):
    settings = Job(corpus=(str(sample / "corpus.jsonl"),), bm25=False, encoder=str(trained[0].output))
    manifest = build_job(tmp_path / "index", settings)
    assert manifest.corpus["papers"] == 128
    with Index(tmp_path / "index") as index:
        hits = first_stage(index, "dense").search(Query(index.paper("s036")), 5)
        assert len(hits) == 5


def arguments(folder: Path, **other: object) -> list[str]:
    options = {
        "cocitations": folder / "train.jsonl",
        "dev": folder / "dev.jsonl",
        "leave-out": folder / "evaluated.jsonl",
        "output": folder / "trained",
        "work": folder / "work",
        "encoder": folder / "bert",
        "objective": "ts+ot",
        "learning-rate": 0.01,
        "seeds": "0",
        "threads": 1,
    } | {name.replace("_", "-"): value for name, value in other.items()}
    pairs = [[f"--{name}", str(value)] for name, value in options.items() if value is not None]
    return ["encoder", *(part for option in pairs for part in option)]


@pytest.fixture(scope="module")
def files(toy_training) -> Path:
    """The folder of the files to learn from and to choose on, and of the model to start from."""
    return toy_training.sources.leave_out.parent


def test_the_command_says_what_came_out(files, tmp_path, capsys):
    main(arguments(files, output=tmp_path / "trained", work=tmp_path / "work"))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path / 'trained'}: ts+ot, loss on dev ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "expected `epochs` of at least 1, found 0"),
        ({"learning_rate": 0}, "expected `learning_rate` above 0, found 0"),
        ({"leave_out": None}, "expected `leave_out`, or QBE_DATA set to a folder that holds csfcube/"),
    ],
)
def test_usage_errors_of_the_command(files, monkeypatch, options, message):
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(UsageError, match=message):
        main(arguments(files, **options))


@pytest.mark.parametrize("options", [{"batch": 1}, {"accumulate": 0}, {"learning_rate": math.nan}])
def test_recipes_that_cannot_be_used(options):
    with pytest.raises(UsageError, match=f"expected `{next(iter(options))}`"):
        Recipe(**options)


def test_data_and_models_that_are_unfit(files, tmp_path):
    places = {"output": tmp_path / "out", "work": tmp_path / "work"}
    few = tmp_path / "few.jsonl"
    few.write_text((files / "train.jsonl").read_text().splitlines()[0])
    for options, error, message in (
        ({"encoder": tmp_path}, ModelError, "found no config.json, model.safetensors or pytorch_model.bin"),
        ({"encoder": "nosuch"}, ModelError, "a model to start from, found none of that name: 'nosuch'"),
        ({"cocitations": tmp_path / "none"}, CorpusError, "cannot read .*none: No such file"),
        ({"dev": few}, CorpusError, r"few\.jsonl: expected co-citations of papers that are not"),
        ({"objective": "cosent", "dev": files / "evaluated.jsonl"}, CorpusError, "line 1: expected the ids"),
    ):
        with pytest.raises(error, match=message):
            main(arguments(files, **places, **options))
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
    assert not (tmp_path / "out").exists()
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="expected a GPU that torch sees for `device` cuda, found none"):
            main(arguments(files, device="cuda"))


def test_choices_and_defaults_of_the_command_are_those_of_its_modules():
    """They are written out in the options, which may not load the modules for the help."""
    options = parser().parse_args(["encoder", "--cocitations", "a", "b", "--output", "c", "--work", "d"])
    assert options.cocitations == ["a", "b"]
    assert options.encoder == BASE_ENCODER
    given = Recipe(options.objective, options.similarity, options.epochs, options.learning_rate)
    assert given == Recipe()
    assert tuple(encoder_recipe.OBJECTIVES) == train_options.OBJECTIVES
    assert encoder_format.SIMILARITIES == train_options.SIMILARITIES
    rates = {name: objective.rate for name, objective in encoder_recipe.OBJECTIVES.items()}
    assert {name for name, rate in rates.items() if rate == 3e-5} == {"ot", "abs", "max"}
