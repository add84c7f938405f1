"""Tiny trainings of the models, each with its data, for the tests of one and for those of all."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from qbe.runs import GradedPair
from qbe.train.work import RunOptions, Sources, run_training
from qbe.types import Paper

RUN = RunOptions(seeds=(0, 1), given="of a test")


class Folders(NamedTuple):
    output: Path
    work: Path


@dataclass
class Training:
    """A tiny training: its class, data, recipe and other options.

    ``weights`` are the files that hold weights, ``parts`` files of the work folder whose damage is noticed.
    ``around`` is done around a training: it stays tiny.
    """

    make: Callable[..., Any]
    sources: Sources
    recipe: Any
    weights: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ("seed-0.pt",)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    def train(
        self, folders: Folders, run: RunOptions = RUN, sources: Sources | None = None, **changes: Any
    ) -> Any:
        with self.around():
            training = self.make(replace(self.recipe, **changes), **self.options)
            return run_training(training, sources or self.sources, *folders, run)


@dataclass(frozen=True)
class Trained:
    training: Training
    sources: Sources
    output: Path
    work: Path
    result: Any

    @classmethod
    def of(cls, training: Training, folder: Path) -> "Trained":
        folders = new_folders(folder)
        return cls(training, training.sources, *folders, training.train(folders))

    def again(self, folder: Path, sources: Sources | None = None, **changes: Any) -> Any:
        return self.training.train(new_folders(folder), RunOptions((0,)), sources, **changes)


def new_folders(folder: Path) -> Folders:
    return Folders(folder / "model", folder / "work")


def write(path: Path, *records: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def mktemp(request: pytest.FixtureRequest, name: str) -> Path:
    return request.getfixturevalue("tmp_path_factory").mktemp(name)


def left_out(folder: Path, title: str = "Of no paper") -> Path:
    return write(folder / "evaluated.jsonl", {"paper_id": "e", "title": title, "abstract": ["Other words."]})


WORDS = {
    "background": "people often need help with many old problems",
    "objective": "we aim to study and find questions",
    "method": "using a method of layers trained on data",
    "result": "results show gains by 5 % over them",
    "other": "code: https://x.y/z",
}  # what sentences of each label are made of, so that a tiny encoder can tell them apart


def labelled_abstract(chance: random.Random) -> dict:
    labels = [label for label in WORDS if chance.random() < 0.8] or ["method"]
    shuffled = [WORDS[label].split() for label in labels]
    for words in shuffled:
        chance.shuffle(words)
    sentences = [" ".join(words).capitalize() + "." for words in shuffled]
    confidences = [chance.choice([0.5, 0.75, 1.0]) for _ in labels]
    return {"sentences": sentences, "labels": labels, "confs": confidences}


def unlabelled_papers(folder: Path) -> Path:
    """40 papers to learn from; 10 others are evaluated on, too short or too long."""
    good = [
        {"paper_id": f"p{i}", "title": f"Paper {i}", "abstract": f"We read {i}. It ends. So did we. Twice."}
        for i in range(40)
    ]
    bad = [
        {"paper_id": "e1", "title": "EVALUATED, title of words", "abstract": good[0]["abstract"]},
        {"paper_id": "e2", "title": "The evaluated title of words", "abstract": good[0]["abstract"]},
        *({"paper_id": f"s{i}", "title": "Short", "abstract": "One. And two."} for i in range(4)),
        *({"paper_id": f"l{i}", "title": "Long", "abstract": "We go on. " * 21} for i in range(4)),
    ]
    return write(folder / "papers.jsonl", *bad, *good)


def structured_papers(folder: Path) -> Path:
    """Six papers to learn from, one of them twice, the first in biology; others have no methods, no headings,
    too few sentences, or are evaluated on.
    """
    text = (
        "Background: Maps are old. Aim: To draw them. Methods: We walked. We drew. Results: It took {} days."
    )
    papers: list[dict[str, Any]] = [
        {"paper_id": f"h{i}", "title": f"Maps of {i}", "abstract": text.format(i)} for i in range(6)
    ]
    papers[0]["metadata"] = {"categories": ["cs.CE", "q-bio.QM"]}
    texts = [
        "Background: Old. They are. Results: It took days.",
        "Maps are old. We walked. We drew.",
        "Methods: We walked. Results: None.",
    ]
    others = [{"paper_id": f"n{i}", "title": f"No {i}", "abstract": text} for i, text in enumerate(texts)]
    twice = [{**papers[0], "paper_id": "again", "title": "MAPS of 0."}]
    return write(folder / "structured.jsonl", *papers, *others, *twice, {**papers[1], "title": "Paper 3"})


@contextmanager
def small_heads() -> Iterator[None]:
    """Heads of a few units in place of those that ship, whose products take most of a tiny training."""
    from qbe.train import tagger, tagger_network

    with pytest.MonkeyPatch.context() as patch:
        small = partial(tagger_network.Head, width=16, pools=2, sentence_width=32, depth=1, dropout=0.1)
        for module in (tagger, tagger_network):
            patch.setattr(module, "Head", small)
        yield


def tagger(request: pytest.FixtureRequest) -> Training:
    from qbe.train.tagger import Recipe, Schedule, TaggerTraining

    encoder, model = (request.getfixturevalue(name) for name in ("tiny_encoder", "tiny_model"))
    folder = mktemp(request, "tagger")
    chance = random.Random(0)
    for split, count in (("train", 60), ("dev", 25), ("test", 20)):
        write(folder / "csabstruct" / f"{split}.jsonl", *(labelled_abstract(chance) for _ in range(count)))
    sources = Sources(
        train=(folder / "csabstruct", structured_papers(folder)),
        corpus=unlabelled_papers(folder),
        leave_out=left_out(folder, "Paper 3"),
    )
    recipe = Recipe(
        layers=(0, 2),
        teacher=Schedule(epochs=1, papers=8, learning_rate=1e-2),
        unlabelled=20,
        soft=Schedule(epochs=1, learning_rate=1e-2),
        gold=Schedule(epochs=6, learning_rate=1e-2),
        headed=Schedule(epochs=1, learning_rate=1e-3, chain=2),
        kept=10,
    )
    files, parts = ("head.int8.onnx", "tagger.json"), ("student-0-headed.pt", "soft-20.npz")
    options = {"encoder": str(encoder), "weights": model}
    return Training(TaggerTraining, sources, recipe, files, options, parts, small_heads)


def write_qrels(path: Path, papers: list[Paper], places: Any) -> Path:
    from support.citing import cited_by

    names = [paper.paper_id for paper in papers]
    lines = [f"{names[place]} 0 {names[cited]} 1\n" for place in places for cited in cited_by(place)]
    path.write_text("".join(lines))
    return path


def citation(request: pytest.FixtureRequest) -> Training:
    """Papers of 2002 to 2009 to train on, and those of 2010 and 2011 as dev."""
    from qbe.train.citation import CitationTraining, HeadSchedule, ProjectionSchedule, Recipe
    from support.citing import CITING, COUNT, NO_YEAR, papers_that_cite

    citing = papers_that_cite(request.getfixturevalue("papers"))
    index = request.getfixturevalue("citing_folder")
    folder = mktemp(request, "collection")
    train_places = [n for n in range(8, CITING) if n != NO_YEAR]
    sources = Sources(
        index=index,
        train=(write_qrels(folder / "train.qrels", citing, train_places),),
        dev=(write_qrels(folder / "dev.qrels", citing, range(CITING, COUNT)),),
    )
    projection = ProjectionSchedule(epochs=1, queries=8, nearest=5, random=2, learning_rate=1e-2)
    recipe = Recipe(projection, HeadSchedule(epochs=1, hidden=3), depth=12)
    return Training(CitationTraining, sources, recipe, ("citation.npz", "citation.json"))


def cross_encoder(request: pytest.FixtureRequest) -> Training:
    """A pair reranker for the same citations, from a tiny BERT without a classifier."""
    from qbe.train.citation_pairs import CitationPairTraining
    from qbe.train.cross_encoder import CrossEncoderRecipe

    sources, model = citation(request).sources, request.getfixturevalue("tiny_model")
    sizes = {"query_tokens": 24, "candidate_tokens": 16, "candidates": 5, "batch": 16}
    measured = {"evaluations": 2, "dev_queries": 4, "dev_depth": 8}
    recipe = CrossEncoderRecipe(epochs=0.5, learning_rate=1e-3, **sizes, **measured)
    weights = ("model.safetensors", "model.int8.onnx", "reranker.json")
    return Training(CitationPairTraining, sources, recipe, weights, {"encoder": str(model)})


def listed_sources(request: pytest.FixtureRequest, folder: Path) -> Sources:
    """Three graded lists to learn from and two of dev, of papers of an index."""
    from support.tiny_reranker import graded_lists, write_lists

    lists = graded_lists(8)
    queries = sorted(lists)
    train, dev = (
        write_lists(folder / f"{name}.tsv", {query: lists[query] for query in chosen})
        for name, chosen in (("train", queries[:3]), ("dev", queries[3:5]))
    )
    index = request.getfixturevalue("graded_index")
    return Sources(index=index, train=(train,), dev=(dev,), leave_out=left_out(folder))


def facet_cross_encoder(request: pytest.FixtureRequest) -> Training:
    """One for all facets, which learns by margins from whole abstracts."""
    from qbe.train.cross_encoder import CrossEncoderRecipe, CrossEncoderTraining

    sources = listed_sources(request, mktemp(request, "facets"))
    sizes = {"query_tokens": 40, "candidate_tokens": 40, "batch": 8, "evaluations": 2, "triplets": 8}
    recipe = CrossEncoderRecipe(loss="margin", texts="whole", steps=2, learning_rate=1e-3, **sizes)
    weights = ("model.safetensors", "model.fp32.onnx", "reranker.json")
    options = {"encoder": str(request.getfixturevalue("tiny_model"))}
    return Training(CrossEncoderTraining, sources, recipe, weights, options)


GRADED = {
    "s036": ("s051 0 3 1", "s059 3 0 1", "s031 2.5 1 0"),
    "s118": ("s012 1 2 0.5", "s001 0 0 0", "s002 1 1 1"),
    "s024": ("s003 2 0 0", "s004 0 2 3"),
}  # candidates with their grades by background, method and result


def grades(request: pytest.FixtureRequest) -> Training:
    from qbe.train.grades import GradeRecipe, GradeTraining
    from qbe.util.files import sha256

    folder = mktemp(request, "pairs")
    header = "query_id paper_id background method result"
    rows = [f"{query} {row}" for query, of_query in GRADED.items() for row in of_query]
    for name, chosen in (("train.tsv", rows), ("dev.tsv", rows[:3])):
        (folder / name).write_text("".join("\t".join(row.split()) + "\n" for row in (header, *chosen)))
    sources = Sources(
        index=request.getfixturevalue("graded_index"),
        train=(folder / "train.tsv",),
        dev=(folder / "dev.tsv",),
        leave_out=left_out(folder),
    )
    recipe = GradeRecipe(epochs=3, batch=4, hidden=2)
    parts = ("0.pt", f"train-train-{sha256(folder / 'train.tsv')[:12]}.npz")
    return Training(GradeTraining, sources, recipe, ("grades.npz", "grades.json"), parts=parts)


def encoder(request: pytest.FixtureRequest) -> Training:
    """Four pairs have a paper with the evaluated one's title."""
    from qbe.train.cocitations import CocitationRecipe, CocitationTraining
    from support.cocitations import planted, write_bert

    folder = mktemp(request, "cocitations")
    write_bert(folder / "bert")
    for name, count, seed in (("train", 60, 1), ("dev", 20, 2)):
        lines = [
            line | {"pos_context": line["pos_context"] | {"cc_align": alignment}}
            for line, alignment in planted(count, seed)
        ]
        for number, line in enumerate(lines[:4]):
            line[("query", "pos_context")[number % 2]]["TITLE"] = "What is evaluated on"
        write(folder / f"{name}.jsonl", *lines)
    sources = Sources(
        train=(folder / "train.jsonl",),
        dev=(folder / "dev.jsonl",),
        leave_out=left_out(folder, "What IS evaluated on?"),
    )
    recipe = CocitationRecipe("ts+ot", batch=8, accumulate=2, learning_rate=0.01)
    weights = ("model.safetensors", "model.int8.onnx", "encoder.json")
    return Training(CocitationTraining, sources, recipe, weights, {"encoder": str(folder / "bert")})


@contextmanager
def small_readers(encoder: Path, tagger: Path) -> Iterator[None]:
    """An encoder and a tagger in place of those that ship, which take most of a tiny training."""
    from qbe.train import encoder as training

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BASE_ENCODER", str(encoder))
        patch.setattr(training, "DEFAULT_TAGGER", str(tagger))
        yield


def graded_sources(request: pytest.FixtureRequest) -> Sources:
    """Lists to learn from in two files, others to choose on, and a candidate that is evaluated on."""
    from support.tiny_reranker import graded_lists, write_lists

    papers = request.getfixturevalue("papers")
    folder = mktemp(request, "pairs")
    lists = graded_lists(8)
    queries = sorted(lists)
    first, second, dev = (
        write_lists(folder / f"{name}.tsv", {query: lists[query] for query in queries[begin : begin + 2]})
        for begin, name in ((0, "first"), (2, "second"), (4, "dev"))
    )
    with second.open("a") as stream:
        stream.write(f"{queries[2]}\t{queries[4]}\t1\t2\t3\n")  # a query of dev
    candidate = lists[queries[0]][3].paper_id
    (evaluated,) = (paper for paper in papers if paper.paper_id == candidate)
    return Sources(
        train=(first, second),
        dev=(dev,),
        corpus=request.getfixturevalue("sample") / "corpus.jsonl",
        leave_out=left_out(folder, evaluated.title.upper()),
    )


def large_encoder(request: pytest.FixtureRequest) -> Training:
    from qbe.models import folders
    from qbe.train import encoder as training
    from support.published import write_mpnet

    base = mktemp(request, "large") / "mpnet"
    write_mpnet(base, request.getfixturevalue("papers"))
    recipe = training.GradedRecipe(steps=2, queries=1, max_tokens=40, rank=4)
    readers = [request.getfixturevalue(name) for name in ("tiny_encoder", "tiny_tagger")]

    @contextmanager
    def with_base() -> Iterator[None]:
        with small_readers(*readers), pytest.MonkeyPatch.context() as patch:
            patch.setattr(folders, "model_folder", lambda _: base)
            yield

    model = ("difference.safetensors", "graph.onnx", "ranges.safetensors")
    files = (*model, "projections/facet-projections.npz")
    return Training(training.GradedTraining, graded_sources(request), recipe, files, around=with_base)


def small_encoder(request: pytest.FixtureRequest) -> Training:
    from qbe.train.encoder import GradedTraining

    large = large_encoder(request)
    options = {"encoder": str(request.getfixturevalue("tiny_classifier"))}  # whose layers have a prefix
    files = ("model.safetensors", "model.int8.onnx", "projections/facet-projections.npz")
    return replace(large, make=GradedTraining, weights=files, options=options)


def joint_grades(request: pytest.FixtureRequest) -> Training:
    """A tiny teacher and a tiny student, over the sample; of the drawn pairs two are graded a paper."""
    from qbe.train.joint import FitRecipe, JointRecipe, JointTraining
    from support.tiny_reranker import write_bert

    folder = mktemp(request, "joint")
    for seed, name in enumerate(("teacher", "student")):
        write_bert(folder / name, seed, positions=512)
    sources = listed_sources(request, folder)
    fit = FitRecipe(steps=2, learning_rate=1e-3, warm_up=0.5, queries=1)
    picks = {"found_picks": ((3, 2), (9, 1)), "graded_picks": ((3, 2),)}
    recipe = JointRecipe(teacher=fit, student=fit, found=2, graded=2, **picks)
    weights, parts_ = ("model.int8.onnx", "joint-grades.json"), ("student/seed-0.pt", "teacher-grades.npz")
    options = {"bases": (folder / "teacher", folder / "student")}
    return Training(JointTraining, sources, recipe, weights, options, (*parts_, "drawn.json"))


PROJECTED = [f"s{number:03d}" for number in range(1, 25)]


def planted_grades(seed: int) -> dict[str, list[GradedPair]]:
    """Lists whose grades are drawn, but the same for a candidate in all lists."""
    drawn = np.random.default_rng(seed)
    grades = {paper_id: tuple(drawn.integers(0, 4, 3).astype(float).tolist()) for paper_id in PROJECTED}
    pairs = [GradedPair(paper_id, grades[paper_id]) for paper_id in PROJECTED]
    return {query: list(pairs) for query in ("s036", "s118", "s060")}


def projections(request: pytest.FixtureRequest) -> Training:
    """Of 24 candidates of two queries one has the title of an evaluated paper."""
    from qbe.train.projections import ProjectionTraining, Recipe
    from support.tiny_reranker import write_lists

    folder = mktemp(request, "projected")
    index, papers = (request.getfixturevalue(name) for name in ("graded_index", "papers"))
    lists = planted_grades(4)
    train_file = write_lists(folder / "train.tsv", {query: lists[query] for query in ("s036", "s118")})
    dev = write_lists(folder / "dev.tsv", {"s060": lists["s060"]})
    (title,) = (paper.title for paper in papers if paper.paper_id == PROJECTED[0])
    sources = Sources(index=index, train=(train_file,), dev=(dev,), leave_out=left_out(folder, title))

    weights = ("facet-projections.npz", "facet-projections.json")
    return Training(ProjectionTraining, sources, Recipe(), weights)


_EVERY = (
    *(tagger, citation, cross_encoder, facet_cross_encoder, grades, encoder, projections),
    *(large_encoder, small_encoder, joint_grades),
)
TRAININGS = {each.__name__: each for each in _EVERY}
