"""The wheel: built without a network, installed outside the checkout, and used from there."""

import os
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
MOST_BYTES = 58_000_000
MODELS = (
    "citation",
    "facet-encoder",
    "facet-encoder-large",
    "facet-projections",
    "facet-projections-large",
    "facet-tagger",
    "grades",
    "joint-grades",
)


def version() -> str:
    """The version, from the one place where it is written."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config["metadata"]["version"]


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of what a package is built from, in a folder named ``qbe`` as a clone's."""
    folder = tmp_path_factory.mktemp("clone") / "qbe"
    folder.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "qbe", folder / "qbe", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def wheel(clone, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, clone)
    shutil.rmtree(clone / "build")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the installed wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--no-compile", "--target", folder, wheel)
    return folder


@pytest.fixture
def run(installed, tmp_path):
    """Runs Python in an empty folder; of qbe it finds only what is installed."""

    def run(*arguments: object) -> str:
        environment = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, "-P", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_wheel_holds_what_is_needed_and_no_more(wheel):
    assert wheel.name == f"qbe-{version()}-py3-none-any.whl"
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {"qbe/py.typed", "qbe/evaluate/published.json", "qbe/datasets/mini/papers.jsonl.xz"}
    for model in MODELS:
        expected |= {f"qbe/models/{model}/README.md", f"qbe/models/{model}/LICENSE"}
    shipped = (path for path in (ROOT / "qbe" / "models").glob("*/*") if path.suffix != ".pyc")
    expected |= {path.relative_to(ROOT).as_posix() for path in shipped}
    expected |= {file.relative_to(ROOT).as_posix() for file in (ROOT / "qbe").rglob("*.py")}
    assert sorted(expected - names) == []
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not [name for name in names if "graded-pairs" in name or not name.startswith("qbe")]


def test_the_installed_package_is_the_one_that_runs(run, installed):
    assert Path(run("-c", "import qbe; print(qbe.__file__)").strip()) == installed / "qbe" / "__init__.py"
    assert run("-m", "qbe", "--version") == f"qbe {version()}\n"
    assert run(installed / "bin" / "qbe", "--version") == f"qbe {version()}\n"


def test_the_collection_is_indexed_and_searched(run):
    command = ("-m", "qbe")
    run(*command, "datasets", "mini", "--output", "mini")
    run(*command, "index", "--corpus", "mini/corpus.jsonl", "--output", "index", "--only=bm25")
    options = ("--first-stage", "bm25", "--rerank", "none", "--hits", "3", "--format", "trec")
    query = ("--paper", "1904.00842", "--facet", "method")
    lines = run(*command, "search", "--index", "index", *query, *options)
    fields = [line.split() for line in lines.splitlines()]
    assert [line[0] for line in fields] == ["1904.00842_method"] * 3
    assert [line[3] for line in fields] == ["1", "2", "3"]


def test_an_editable_install_works_beside_the_clone(clone, tmp_path):
    """A script beside a clone named ``qbe`` imports the package, not the clone's folder.

    That folder has no ``__init__.py``. Python prefers a package further down its path to such a folder, but
    the folder to a package that only an import hook knows, as editable installs of other layouts have.
    """
    program = "from setuptools.build_meta import build_editable; import sys; build_editable(sys.argv[1])"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    build = [sys.executable, "-c", program, tmp_path]
    subprocess.run(build, cwd=clone, env=environment, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    script = clone.parent / "script.py"
    script.write_text(
        "import qbe\nfrom qbe import Facet\nprint(qbe.__file__, qbe.__version__, Facet.METHOD)\n"
    )
    for command in ([python, script], [tmp_path / "venv" / "bin" / "qbe", "--version"]):
        done = subprocess.run(
            command, cwd=clone.parent, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert version() in done.stdout
