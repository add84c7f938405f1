"""Training of the facet tagger: its data, its parts worked by hand, and the whole of it on a tiny encoder."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.messages import messages_of
from support.trainings import new_folders, small_heads, structured_papers, unlabelled_papers, write

from qbe.corpus.identity import TitleIndex
from qbe.errors import CorpusError, ModelError
from qbe.models.cards import HEAD, TAGGER
from qbe.models.encoder import Encoder
from qbe.models.export.encoder import Feed, export_head
from qbe.models.folders import resolve_tagger
from qbe.models.tagger import Tagger
from qbe.train import tagger as training
from qbe.train import tagger_network as network
from qbe.train.tagger import Example, Schedule
from qbe.train.work import RunOptions
from qbe.types import FacetProbabilities, Sentence
from qbe.util.files import sha256

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = "tagger"

# CSAbstruct's files.


ABSTRACT = {"sentences": ["Why.", "How."], "labels": ["background", "method"], "confs": [1, 0.5]}


def test_reading_csabstruct(tmp_path):
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.jsonl", ABSTRACT, ABSTRACT)
    write(tmp_path / "test.jsonl", {"sentences": ["So."], "labels": ["result"]})
    actual = network.read_csabstruct(tmp_path)
    assert list(actual) == ["train", "dev", "test"]
    assert actual["dev"] == [network.LabelledAbstract(("Why.", "How."), (0, 2), (1.0, 0.5))] * 2
    assert actual["test"] == [network.LabelledAbstract(("So.",), (3,), (1.0,))]


BROKEN = [
    *({"labels": []}, {**ABSTRACT, "labels": ["aim", "method"]}, {**ABSTRACT, "labels": None}),
    *({**ABSTRACT, "confs": ["sure", 1]}, {**ABSTRACT, "labels": ["method"]}, {**ABSTRACT, "confs": [1]}),
    *({"sentences": [], "labels": []}, [1]),
]


def test_files_of_csabstruct_that_cannot_be_read(tmp_path, told):
    def reads(*records: object) -> Callable[[], object]:
        return lambda: write(tmp_path / "train.jsonl", *records) and network.read_csabstruct(tmp_path)

    actions = [reads(ABSTRACT, broken) for broken in BROKEN]
    absent = [lambda: network.read_csabstruct(tmp_path)]
    told("CSAbstruct", messages_of([*absent, *actions, reads()], CorpusError, tmp_path))


def test_samples(tmp_path):
    unlabelled = unlabelled_papers(tmp_path)
    evaluated = TitleIndex(["Another", "Evaluated title of words"])
    everything = network.sample_papers(unlabelled, evaluated, 40, 0)
    assert {paper.paper_id for paper in everything} == {f"p{i}" for i in range(40)}
    assert [paper.paper_id for paper in everything[:3]] != ["p0", "p1", "p2"]
    assert [sentence.text for sentence in everything[0].sentences][1:] == ["It ends.", "So did we.", "Twice."]
    assert network.sample_papers(unlabelled, evaluated, 15, 0) == everything[:15]
    assert network.sample_papers(unlabelled, evaluated, 40, 1) != everything
    assert network.sample_papers(unlabelled, evaluated, 0, 0) == []
    with pytest.raises(CorpusError, match=r"expected 41 abstracts of 3 to 20 sentences .*, found 40; give"):
        network.sample_papers(unlabelled, evaluated, 41, 0)


def test_structured_abstracts(tmp_path):
    papers = network.headed_papers([structured_papers(tmp_path)], TitleIndex(["Paper 3"]))
    assert [paper.paper_id for paper in papers] == [f"h{i}" for i in range(6)]
    texts = ["Maps are old.", "To draw them.", "We walked.", "We drew.", "It took 0 days."]
    assert [sentence.text for sentence in papers[0].sentences] == texts
    conclusion = Sentence("It helps.", None, FacetProbabilities(0, 0, 0, 0, 1))
    read = replace(papers[0], sentences=(*papers[0].sentences, conclusion, Sentence("?")))
    example = Example.headed(None, read, (0.5, 0.25))
    aims, method, result = [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]
    assert example.targets[:5].tolist() == [aims, aims, method, method, result]
    assert example.weights.tolist() == [0.5] * 5 + [0, 0]
    assert Example.headed(None, papers[1], (0.5, 0.25)).weights.tolist() == [0.25] * 5
    assert network.headed_papers([], TitleIndex([])) == []
    record = {"paper_id": "n", "title": "None", "abstract": "One. Two. Three."}
    other = write(tmp_path / "other.jsonl", record)
    told = r"other\.jsonl: expected structured abstracts .*, found none; give a"
    with pytest.raises(CorpusError, match=told):
        network.headed_papers([other], TitleIndex([]))


def any_of(targets: np.ndarray, marginals: torch.Tensor) -> torch.Tensor:
    return marginals.masked_fill(torch.from_numpy(targets == 0), -torch.inf).logsumexp(-1)


def test_several_labels_may_be_right():
    """The gradient is that of the probability of any of them."""
    torch.manual_seed(0)
    head = SimpleNamespace(chain=network.Chain())
    scores, present = torch.randn(1, 2, 5), torch.ones(1, 2).bool()
    targets = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]], np.float32)
    example = Example(made_up(0, [0, 2]), targets, np.ones(2, np.float32))
    gradients = []
    for compute in (
        lambda given: training.loss(head, given, present, [example]),
        lambda given: -any_of(targets, head.chain.log_marginals(given, present)).mean(),
    ):
        given = scores.clone().requires_grad_()
        compute(given).backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients)


def test_scores():
    abstracts = [
        network.LabelledAbstract(("",) * 3, (0, 1, 2), (1.0, 0.5, 0.5)),
        network.LabelledAbstract(("",) * 4, (3, 4, 3, 3), (1.0, 0.75, 0.25, 1.0)),
    ]
    first = np.array([[0.6, 0.4, 0, 0, 0], [0.25, 0.25, 0.4, 0.1, 0], [0, 0.3, 0.4, 0.3, 0]])
    second = np.array([[0, 0, 0, 1, 0], [0.2, 0.2, 0, 0.5, 0.1]])  # two sentences did not fit
    actual = training.score(abstracts, [first, second])
    assert actual.micro_f1 == pytest.approx(100 * 5 / 7)
    assert actual.folded == pytest.approx(100 * 6 / 7)
    assert actual.confident == pytest.approx(100 * 3.75 / 5)


WIDTH = 8
"""Numbers a token has in one layer; the made-up papers have two layers."""


def made_up(seed: int, labels: list[int]) -> network.Tokens:
    """Random states; those of a sentence's tokens are large at the place of its label. Title of 2 tokens."""
    chance = np.random.default_rng(seed)
    spans, numbers = [], [chance.integers(-20, 20, (2, WIDTH)) for _ in range(3)]
    for label in labels:
        begin = len(numbers)
        for _ in range(chance.integers(1, 5)):
            numbers.append(chance.integers(-20, 20, (2, WIDTH)))
            numbers[-1][:, label] += 90
        spans.append((begin, len(numbers)))
    numbers.append(chance.integers(-20, 20, (2, WIDTH)))
    scales = np.full((len(numbers), 2, 1), 0.03, np.float16)
    ids = np.arange(1, len(numbers) + 1, dtype=np.int32)
    return network.Tokens(ids, tuple(spans), np.array(numbers, np.int8), scales)


def scores(head: network.Head, *papers: network.Tokens) -> list[np.ndarray]:
    with torch.inference_mode():
        actual = head(*head.collate(papers)).numpy()
    return [rows[: len(paper.spans)] for rows, paper in zip(actual, papers, strict=True)]


@pytest.fixture(scope="module")
def encoder(tiny_encoder) -> Encoder:
    return Encoder.open(str(tiny_encoder), "fp32")


def test_a_teacher_learns_in_its_layers_but_not_in_its_embeddings(encoder, papers, tiny_model, tmp_path):
    torch.manual_seed(0)
    with small_heads():
        teacher = network.Teacher(tiny_model, (0, 1))
    before = {name: value.clone() for name, value in teacher.named_parameters()}
    examples = []
    for tokens in training.record_states(encoder, (0, 1), papers[:4]):
        count = len(tokens.spans)
        examples.append(Example(tokens, np.eye(5, dtype=np.float32)[[2] * count], np.ones(count, np.float32)))
    training.fit(teacher, examples, Schedule(epochs=1, papers=2), 0, tmp_path / "teacher.pt")
    changed = {name for name, value in teacher.named_parameters() if not torch.equal(value, before[name])}
    assert not any(name.startswith("trunk.embeddings") for name in changed)
    assert any(name.startswith("trunk.encoder.layer.0") for name in changed)
    assert "head.chain.begin" in changed


def test_what_was_trained_is_a_tagger(trained, tiny_encoder):
    metadata = resolve_tagger(str(trained.output)).metadata
    assert {path.name for path in trained.output.iterdir()} == {HEAD, TAGGER.metadata_file, "README.md"}
    own, encoder = Tagger.open(str(trained.output)), Encoder.open(str(tiny_encoder))
    assert own.supports(encoder)
    actual = training.measure(encoder, own, network.read_csabstruct(trained.sources.train[0])["test"])
    figures = metadata.training["test"]
    assert figures == actual.figures
    assert figures["micro_f1"] > 60  # the rule is easy, the encoder tiny and random
    text = " ".join((trained.output / "README.md").read_text().split())
    assert f"micro-F1 {figures['micro_f1']:.2f} over five labels, {figures['folded']:.2f} with" in text
    row = metadata.training["seeds"]["0"]["dev"]
    assert f"| 0 | dev | {row['micro_f1']:.2f} | {row['folded']:.2f} | {row['confident']:.2f} |" in text


def test_the_metadata_state_how_it_came_about(trained):
    record = resolve_tagger(str(trained.output)).metadata.training
    assert list(record["seeds"]) == ["0", "1"]
    assert record["seed"] == max((0, 1), key=lambda seed: record["seeds"][str(seed)]["dev"]["confident"])
    assert record["recipe"]["gold"] == asdict(Schedule(epochs=6, learning_rate=1e-2))
    tests = [record["seeds"][str(seed)]["test"]["micro_f1"] for seed in (0, 1)]
    assert record["spread"]["micro_f1"] == pytest.approx(abs(tests[0] - tests[1]) / 2, abs=0.01)
    assert record["parity"]["fp32_max_abs_difference"] < 1e-3
    assert record["parity"]["int8_same_label"] >= 0.98


def test_a_tagger_learns_on_from_what_was_published(trained, tiny_encoder, tmp_path):
    """At a rate of zero it stays as it was, but for rounding."""
    options = {**trained.training.options, "start": str(trained.output)}
    still = Schedule(epochs=1, learning_rate=0.0)
    replace(trained.training, options=options).train(new_folders(tmp_path), RunOptions((0,)), headed=still)
    output = new_folders(tmp_path).output
    record = resolve_tagger(str(output)).metadata.training
    assert record["start"] == sha256(trained.output / HEAD)
    assert record["structured"] == 6
    assert "learned from headings of 6 abstracts" in " ".join((output / "README.md").read_text().split())
    abstracts = network.read_csabstruct(trained.sources.train[0])["dev"]
    before, after = (
        training.measure(Encoder.open(str(tiny_encoder)), Tagger.open(str(folder)), abstracts)
        for folder in (trained.output, output)
    )
    assert after == pytest.approx(before, abs=3)


def test_no_other_tagger_learns_on(tiny_tagger):
    told = r"expected a tagger that qbe train tagger wrote .*, found another pro"
    with pytest.raises(ModelError, match=told):
        training.started_head(resolve_tagger(str(tiny_tagger)), 32)
    told = r"for 32 inputs as `start`, found another project\.weight; give ano"
    with pytest.raises(ModelError, match=told):
        training.started_head(resolve_tagger("facet-tagger"), 32)


def readings() -> list[Feed]:
    papers = [made_up(seed, [(seed + place) % 5 for place in range(2 + seed % 5)]) for seed in range(20)]
    spans = [network.Head.collate([paper])[1].numpy() for paper in papers]
    states = [np.ascontiguousarray(paper.states.swapaxes(0, 1)) for paper in papers]
    return [{"states": one, "spans": other} for one, other in zip(states, spans, strict=True)]


class Fragile(torch.nn.Module):
    """Label scores that differ by less than eight bits can tell."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(2 * WIDTH, 5)
        self.linear.weight.data = torch.ones(5, 2 * WIDTH) + 1e-3 * torch.randn(5, 2 * WIDTH)
        self.linear.bias.data.zero_()

    def forward(self, states, spans, present):
        inside = spans.float()
        return self.linear(inside @ states / inside.sum(-1, keepdim=True))


def test_a_head_that_does_not_survive_the_export_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"expected int8 with at most 2% other labels.*, found "):
        export_head(Fragile(), readings(), tmp_path / HEAD)


def test_the_recipe_that_ships_is_the_default():
    shipped = resolve_tagger("facet-tagger").metadata.training["recipe"]
    assert json.loads(json.dumps(asdict(training.Recipe()))) == shipped
