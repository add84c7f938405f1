"""The manifest of the shipped weights: the files are those it lists, and what they came from is there."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from qbe.cli.parser import parse
from qbe.models.folders import BASES, LARGE_SHA256
from qbe.util.files import sha256

ROOT = Path(__file__).parent.parent
MODELS = ROOT / "qbe" / "models"
MANIFEST = json.loads((MODELS / "manifest.json").read_text())
DOCUMENTS = {"README.md", "LICENSE", "NOTICE"}

folders = pytest.mark.parametrize("name", MANIFEST["models"])


def test_every_model_is_in_the_manifest_and_what_is_superseded_was_named():
    assert {path.parent.name for path in MODELS.glob("*/README.md")} == MANIFEST["models"].keys()
    named = {digest for model in MANIFEST["models"].values() for digest in model["trained_from"].values()}
    assert MANIFEST["superseded"].keys() <= named
    assert all(MANIFEST["superseded"].values())


@folders
def test_files_are_those_of_the_manifest(name):
    files = {path.name: sha256(path) for path in (MODELS / name).iterdir() if path.name not in DOCUMENTS}
    assert files == MANIFEST["models"][name]["files"]


def known_digests() -> set[str]:
    """Digests of what is there: files and weights of the models, bases, data, and superseded ones."""
    models = MANIFEST["models"].values()
    digests = {digest for model in models for digest in model["files"].values()}
    digests |= {model["weights"] for model in models if "weights" in model}
    for base, _ in BASES.values():
        digests |= set(base.digests.values())
    return digests | {LARGE_SHA256} | MANIFEST["superseded"].keys()


def data_file(name: str) -> Path | None:
    """The file of a name such as graded-pairs/train.tsv, in the repository or in QBE_DATA, if any."""
    places = [ROOT / "data", *([Path(os.environ["QBE_DATA"])] if os.environ.get("QBE_DATA") else [])]
    return next((place / name for place in places if (place / name).is_file()), None)


@folders
def test_what_a_model_was_trained_from_is_there(name):
    trained_from = dict(MANIFEST["models"][name]["trained_from"])
    trained_from.pop("index", None)  # an index is built from the papers of the data, and not kept
    for source, digest in trained_from.items():
        if "/" not in source:
            assert digest in known_digests(), f"{source}: no {digest}; say why in superseded"
        elif source.startswith("graded-pairs/") or data_file(source):
            assert sha256(data_file(source)) == digest, source


@folders
def test_no_metadata_name_a_digest_that_is_not_there(name):
    """Encoders and rerankers that a model reads, also reads, or was distilled from."""
    known = known_digests() | set(MANIFEST["models"][name]["trained_from"].values())
    for path in (MODELS / name).glob("*.json"):
        for digest in re.findall(r'"([0-9a-f]{64})"', path.read_text()):
            assert path.name == "tokenizer.json" or digest in known, f"{path.name}: {digest}"


@folders
def test_commands_can_be_given(name):
    for command in MANIFEST["models"][name]["commands"]:
        program, subcommand, *arguments = shlex.split(command)
        assert program == "qbe"
        if subcommand == "train":
            parse("train", arguments)
