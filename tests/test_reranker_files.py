"""Resolving a reranker: names, folders, the cache, metadata of both kinds; what is refused."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.damage import truncate

from qbe.errors import ModelError, UsageError
from qbe.files import sha256
from qbe.models import sources
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import (
    RERANKER_CARD,
    RERANKER_FORMAT,
    TRUNK,
    CrossEncoderMetadata,
    FacetRerankersMetadata,
    read_reranker_card,
    resolve_reranker,
    write_reranker_card,
)


@pytest.fixture
def exported(tmp_path, tiny_cross_encoder) -> Path:
    """A copy of the export, to be damaged."""
    return Path(shutil.copytree(tiny_cross_encoder, tmp_path / "exported"))


@pytest.fixture
def facets(tmp_path) -> Path:
    """A folder of facet rerankers for two facets, with words for models."""
    folder = tmp_path / "facets"
    folder.mkdir()
    names = ("background.onnx", "method.onnx", TRUNK, "tokenizer.json")
    for name in names:
        (folder / name).write_text(name)
    card = FacetRerankersMetadata(
        name="two-facets",
        precision="int8",
        max_tokens=256,
        files={name: sha256(folder / name) for name in names},
        heads={"background": [1.0, 0.5], "method": [0.25, 2.0]},
        training={"seed": 1},
    )
    write_reranker_card(folder, card)
    return folder


def test_a_folder_is_found_in_each_precision(tiny_cross_encoder):
    for precision in ("int8", "fp32"):
        files = resolve_reranker(str(tiny_cross_encoder), precision)
        assert files.model() == files.model("method") == tiny_cross_encoder / f"model.{precision}.onnx"
        assert files.tokenizer == tiny_cross_encoder / "tokenizer.json"
        assert isinstance(files.metadata, CrossEncoderMetadata)
        files.verify()
        files.verify("result")


def test_only_the_files_in_use_are_checked_and_must_be_in_the_card(exported, facets):
    truncate(exported / "model.fp32.onnx")
    resolve_reranker(str(exported)).verify()
    with pytest.raises(ModelError, match=r"model\.fp32\.onnx: expected SHA-256"):
        resolve_reranker(str(exported), "fp32").verify()
    card = read_reranker_card(facets)
    del card.files[TRUNK]  # type: ignore[attr-defined]
    write_reranker_card(facets, card)
    with pytest.raises(ModelError, match=rf"{TRUNK}: expected SHA-256 None, found "):
        resolve_reranker(str(facets)).verify("method")


def test_facet_rerankers_have_a_model_a_facet(facets):
    files = resolve_reranker(str(facets))
    assert files.metadata == read_reranker_card(facets)
    assert files.metadata.heads == {"background": [1.0, 0.5], "method": [0.25, 2.0]}
    assert files.model("method") == facets / "method.onnx"
    with pytest.raises(UsageError, match=r"that two-facets reranks \(background, method\), found result;"):
        files.model("result")
    with pytest.raises(UsageError, match="found none"):
        files.model()
    with pytest.raises(UsageError, match=r"only one of .*facets, found fp32; give `precision` int8$"):
        resolve_reranker(str(facets), "fp32")


@pytest.mark.parametrize("name", ["method.onnx", TRUNK, "tokenizer.json"])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_facet_rerankers_are_checked_by_facet(facets, name, damage):
    files = resolve_reranker(str(facets))
    files.verify()
    damage(facets / name)
    for facet in ("method", None):
        with pytest.raises(ModelError, match=rf"{name}: expected SHA-256 .*; install qbe again, or train"):
            files.verify(facet)
    if name == "method.onnx":
        files.verify("background")


def test_names_that_are_no_reranker_are_refused(cache):
    with pytest.raises(ModelError, match=f"known by name .{DEFAULT_RERANKER}.*found 'nosuch'; check `rer"):
        resolve_reranker("nosuch")
    with pytest.raises(UsageError, match="expected a precision of int8, fp32, fp16, found 'int4'"):
        resolve_reranker("nosuch", "int4")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "in format 1, found kind pair in format 2; export or train it again"),
        ({"kind": "list"}, "of kind pair or facet in format 1, found kind list"),
        ({"heads": {}}, "expected the metadata of a reranker, found .*heads"),
    ],
)
def test_another_card_is_refused(exported, change, message):
    path = exported / RERANKER_CARD
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        resolve_reranker(str(exported))
    for text in ("{", "[]", "{}", '"kind"'):
        path.write_text(text)
        with pytest.raises(ModelError, match=r"reranker\.json: expected "):
            resolve_reranker(str(exported))


def test_a_hub_name_is_downloaded_and_exported(tiny_classifier, tiny_cross_encoder, cache, monkeypatch):
    import huggingface_hub

    requests = []

    def snapshot_download(name, allow_patterns):
        requests.append((name, allow_patterns))
        return str(tiny_classifier)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)

    def run(command, **_):
        assert command[:4] == [sys.executable, "-m", "qbe.export", "cross-encoder"]
        assert command[command.index("--source") + 1] == "owner/model"
        shutil.copytree(tiny_cross_encoder, command[command.index("--output") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(sources.processes, "run", run)
    digest = sha256(tiny_classifier / "model.safetensors")[:12]
    folder = cache / "rerankers" / f"model-{digest}-{RERANKER_FORMAT}"
    assert resolve_reranker("owner/model").folder == folder
    assert requests == [("owner/model", ["config.json", "model.safetensors", "tokenizer.json"])]


def test_a_failed_download_is_told(cache, monkeypatch):
    import huggingface_hub

    def snapshot_download(*_, **__):
        raise OSError("no network\nat all")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match="cannot load the reranker owner/model from the hub: no network;"):
        resolve_reranker("owner/model")
