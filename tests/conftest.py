"""Fixtures shared by all tests."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.pop("COLUMNS", None)  # which pytest-xdist tells its processes; tables are as wide as without it

# A thread of PyTorch that has nothing to do sleeps: other tests run beside. Read where OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes depends on what else the machine does.
settings.register_profile("qbe", deadline=None)
settings.load_profile("qbe")

if os.environ.get("PYTEST_XDIST_WORKER"):
    # What was connected to a cluster whose nodes died does not live long: a process of their own runs these.
    collect_ignore = ["test_cluster.py"]


ERRORS = Path(__file__).parent / "data" / "errors.txt"


def pytest_addoption(parser) -> None:
    parser.addoption("--write-errors", action="store_true", help="write tests/data/errors.txt anew")
    parser.addoption("--shared", type=Path, help="folder of what tests share, kept for another run")


@pytest.fixture
def told(request) -> Callable[[str, Sequence[str]], None]:
    """Compares messages, each of one line, with a section of tests/data/errors.txt, the one place where their
    wording stands; with --write-errors (and -n 0) writes the section.
    """

    def check(section: str, messages: Sequence[str]) -> None:
        assert all(message and "\n" not in message for message in messages)
        sections = dict(re.findall(r"^\[(.+)\]\n((?:.+\n)*)", ERRORS.read_text(), re.MULTILINE))
        lines = "".join(f"{message}\n" for message in messages)
        if request.config.getoption("--write-errors"):
            sections[section] = lines
            ERRORS.write_text("\n".join(f"[{name}]\n{sections[name]}" for name in sorted(sections)))
        assert lines == sections.get(section)

    return check


def pytest_ignore_collect(collection_path: Path, config) -> bool | None:
    """Import no slow file (several import torch) where none of its tests would run."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return bool(re.search(r"^pytestmark = \[?pytest\.mark\.slow", collection_path.read_text(), re.M)) or None


def pytest_collection_modifyitems(items) -> None:
    """Let property tests try QBE_EXAMPLES inputs at most, for `make test-fast`."""
    most = int(os.environ.get("QBE_EXAMPLES", "0"))
    for item in items:
        chosen = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if most and chosen is not None:
            fewer = settings(chosen, max_examples=min(most, chosen.max_examples))
            item.obj._hypothesis_internal_use_settings = fewer


@pytest.fixture(scope="session")
def qbe_data() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    folder = os.environ.get("QBE_DATA")
    if not folder:
        pytest.skip("skipped: QBE_DATA is not set")
    return Path(folder).resolve()


Shared = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def shared(tmp_path_factory, request) -> Shared:
    """Makes a folder of a name once for all processes that run the tests."""
    from qbe.util.files import make_once

    base = tmp_path_factory.getbasetemp()
    root = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    root = (request.config.getoption("--shared") or root).absolute()
    root.mkdir(exist_ok=True, parents=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, partial = root / name, root / "partial" / name

        def made() -> None:
            partial.parent.mkdir(exist_ok=True)
            make(partial)
            partial.rename(folder)

        make_once(folder, folder.exists, made, lambda: None)
        return folder

    return once


def made(name: str, function: str, *wanted: str) -> Any:
    """A fixture: the folder of a name that a function makes of what other fixtures give."""

    @pytest.fixture(scope="session")
    def folder(request, shared) -> Path:
        module, _, attribute = function.rpartition(".")
        given = [request.getfixturevalue(each) for each in wanted]
        return shared(name, lambda path: getattr(importlib.import_module(module), attribute)(path, *given))

    return folder


def opened(folder: str, **options: Any) -> Any:
    """A fixture: the index in a folder, for tests that do not change it."""

    @pytest.fixture(scope="session")
    def index(request):
        from qbe.index.index import Index

        with Index(request.getfixturevalue(folder), **options) as index:
            yield index

    return index


@pytest.fixture(scope="session")
def sample() -> Path:
    """128 invented papers and their judgements (`tests/data/sample`), to be read alone."""
    return Path(__file__).parent / "data" / "sample"


@pytest.fixture(scope="session")
def papers(sample):
    """The papers of the sample, in order."""
    from qbe.corpus.json_formats import read_jsonl

    return list(read_jsonl(sample / "corpus.jsonl"))


@pytest.fixture(scope="session")
def tiny_model(shared, papers) -> Path:
    """A model folder as Hugging Face lays it out: a BERT of 16 dimensions with random weights."""

    def make(folder: Path) -> None:
        from support.tiny import write_model

        write_model(folder, [text for paper in papers for text in (paper.title, paper.abstract)])

    return shared("tiny-bert", make)


@pytest.fixture
def model(tmp_path, tiny_model) -> Path:
    """A copy of the tiny model, to be damaged."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


@pytest.fixture(scope="session")
def with_jar() -> Callable[[Path], Path]:
    """Makes a folder a cache with Anserini's jar, which is downloaded into the user's cache alone."""
    from qbe.index.jvm import anserini_jar

    jar = anserini_jar()

    def link(folder: Path) -> Path:
        (folder / "java").mkdir(parents=True, exist_ok=True)
        (folder / "java" / jar.name).symlink_to(jar)
        return folder

    return link


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny_encoder(shared, tiny_model) -> Path:
    """The tiny model, exported by the command line."""

    def make(folder: Path) -> None:
        options = ["--model", tiny_model, "--output", folder]
        command = [sys.executable, "-m", "qbe", "export", "encoder", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["int8", "fp32"]

    return shared("tiny", make)


@pytest.fixture
def other_encoder(tmp_path, tiny_encoder) -> Path:
    """An encoder that says it has other weights."""
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "other"))
    card = json.loads((folder / "encoder.json").read_text())
    (folder / "encoder.json").write_text(json.dumps(card | {"name": "other", "weights_sha256": "f" * 64}))
    return folder


# A tagger of random weights that reads the tiny encoder.
tiny_tagger = made("tiny-tagger", "support.tiny_tagger.write_tagger", "tiny_encoder")
# The tiny model under a head that scores pairs of texts, as Hugging Face lays it out.
tiny_classifier = made("tiny-classifier", "support.tiny_classifier.write_classifier", "tiny_model")
# What tiny facet rerankers are trained from, as Hugging Face lays it out.
tiny_reranker_weights = made("tiny-reranker", "support.tiny_reranker.write_bert")
# Joint grades of random weights.
tiny_joint_grades = made("tiny-joint-grades", "support.tiny_reranker.write_joint")


@pytest.fixture(scope="session")
def tiny_cross_encoder(shared, tiny_classifier) -> Path:
    """The tiny classifier, exported by the command line."""

    def make(folder: Path) -> None:
        from qbe.cli.export import main

        main(["cross-encoder", "--model", str(tiny_classifier), "--output", str(folder)])

    return shared("tiny-cross-encoder", make)


@pytest.fixture(scope="session")
def tiny_index(shared, sample, tiny_encoder) -> Path:
    """The sample, indexed with the tiny encoder: postings and vectors."""
    from qbe.index.build import build
    from qbe.index.jvm import make_class_archive
    from qbe.index.source import BuildSettings

    def make(folder: Path) -> None:
        build(folder / "sample", [str(sample / "corpus.jsonl")], BuildSettings(encoder=str(tiny_encoder)))
        make_class_archive(folder / "sample")  # which saves half a second of every process that starts Java

    return shared("indexes", make) / "sample"


@pytest.fixture
def copy(tmp_path, tiny_index) -> Path:
    """A copy of the index of the sample, to be damaged."""
    return Path(shutil.copytree(tiny_index, tmp_path / "index"))


@pytest.fixture(scope="session")
def graded_index(shared, sample) -> Path:
    """The sample, indexed with the default encoder, whose vectors the grade model reads."""
    from qbe.index.build import build
    from qbe.index.source import BuildSettings

    corpus = str(sample / "corpus.jsonl")
    return shared("graded-index", lambda folder: build(folder, [corpus], BuildSettings()))


@pytest.fixture(scope="module")
def service(graded_index):
    """What answers requests about the sample."""
    from qbe.index.index import open_index
    from qbe.serve.service import SearchService

    with open_index(graded_index, threads=1) as index, SearchService(index) as opened:
        yield opened


@pytest.fixture(scope="session")
def citing_folder(shared, papers, tiny_encoder) -> Path:
    """An index of papers that cite each other (see `support.citing.papers_that_cite`)."""
    from support.citing import index_of, papers_that_cite

    return shared("citing-index", lambda folder: index_of(folder, papers_that_cite(papers), tiny_encoder))


@pytest.fixture(scope="session")
def light_index(shared, papers, tiny_encoder) -> Path:
    """Papers of the sample and vectors of the tiny encoder: what searches or serves this needs no Java."""
    from qbe.index.build import build
    from qbe.index.source import BuildSettings

    settings = BuildSettings(bm25=False, encoder=str(tiny_encoder))
    return shared("light-index", lambda folder: build(folder, papers[:40], settings))


index, graded, citing_index = opened("tiny_index"), opened("graded_index"), opened("citing_folder", threads=2)
# A citation model of random weights for the vectors of the papers that cite.
citing_model = made("citing-model", "support.citing.write_tiny_model", "citing_folder")


@pytest.fixture(scope="session")
def kill():
    """Runs builds that are killed at a moment."""
    from support.builds import killer

    with killer() as started:
        yield started


@pytest.fixture(scope="session")
def trained_once(request, tmp_path_factory):
    """The tiny training of a name, done with two seeds, once for all tests of a process that only read it."""
    from support.trainings import TRAININGS, Trained

    done: dict[str, Trained] = {}

    def once(name: str) -> Trained:
        if name not in done:
            done[name] = Trained.of(TRAININGS[name](request), tmp_path_factory.mktemp(name))
        return done[name]

    return once


@pytest.fixture(scope="module")
def trained(request, one_thread, trained_once):
    """The training that a file of tests names, done."""
    return trained_once(request.module.TRAINED)


@pytest.fixture
def search(tiny_index, capsys):
    """Run the command in this process; gives what it printed."""
    from qbe.cli.search import main

    def run(*arguments: object, folder: Path = tiny_index) -> str:
        main(["--index", str(folder), *map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def one_thread():
    """The sums of one thread are the same in every process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
