"""Resolving a pair cross-encoder: names, folders, the cache, metadata; what is refused."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.damage import truncate

from qbe.errors import ModelError, UsageError
from qbe.models import folders
from qbe.models.cards import CROSS_ENCODER, DEFAULT_RERANKER, CrossEncoderMetadata, read_card, write_card
from qbe.models.folders import resolve_reranker
from qbe.util.files import sha256


@pytest.fixture
def exported(tmp_path, tiny_cross_encoder) -> Path:
    """A copy of the export, to be damaged."""
    return Path(shutil.copytree(tiny_cross_encoder, tmp_path / "exported"))


def test_a_folder_is_found_in_each_precision(tiny_cross_encoder):
    for precision in ("int8", "fp32"):
        files = resolve_reranker(str(tiny_cross_encoder), precision)
        assert files.model == tiny_cross_encoder / f"model.{precision}.onnx"
        assert files.tokenizer == tiny_cross_encoder / "tokenizer.json"
        assert isinstance(files.metadata, CrossEncoderMetadata)
        files.verify()


def test_only_the_files_in_use_are_checked_and_must_be_in_the_card(exported):
    truncate(exported / "model.fp32.onnx")
    resolve_reranker(str(exported)).verify()
    with pytest.raises(ModelError, match=r"model\.fp32\.onnx: expected SHA-256"):
        resolve_reranker(str(exported), "fp32").verify()
    card = read_card(exported, CROSS_ENCODER)
    del card.files["tokenizer.json"]  # type: ignore[attr-defined]
    write_card(exported, card)
    with pytest.raises(ModelError, match=r"tokenizer\.json: expected SHA-256 None, found "):
        resolve_reranker(str(exported)).verify()


def test_names_that_are_no_reranker_are_refused(cache):
    with pytest.raises(ModelError, match=f"known by name .{DEFAULT_RERANKER}.*found 'nosuch'; check `rer"):
        resolve_reranker("nosuch")
    with pytest.raises(UsageError, match="expected a `precision` of int8, fp32, fp16, found 'int4'"):
        resolve_reranker("nosuch", "int4")
    with pytest.raises(ModelError, match="expected a pair cross-encoder, found joint grades"):
        resolve_reranker(DEFAULT_RERANKER)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "of format 1, found format 2; delete the folder"),
        ({"heads": {}}, "expected reranker metadata, found: .*heads"),
    ],
)
def test_another_card_is_refused(exported, change, message):
    path = exported / CROSS_ENCODER.metadata_file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        resolve_reranker(str(exported))
    for text in ("{", "[]", "{}", '"kind"'):
        path.write_text(text)
        with pytest.raises(ModelError, match=r"reranker\.json: expected "):
            resolve_reranker(str(exported))


def test_a_hub_name_is_downloaded_and_exported(tiny_classifier, tiny_cross_encoder, cache, monkeypatch):
    requests = []

    def snapshot_download(name, allow_patterns):
        requests.append((name, allow_patterns))
        return str(tiny_classifier)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)

    def run(command, **_):
        assert command[:5] == [sys.executable, "-m", "qbe", "export", "cross-encoder"]
        assert command[command.index("--source") + 1] == "owner/model"
        shutil.copytree(tiny_cross_encoder, command[command.index("--output") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(folders.work, "run", run)
    digest = sha256(tiny_classifier / "model.safetensors")[:12]
    folder = cache / "rerankers" / f"model-{digest}-{CROSS_ENCODER.format}"
    assert resolve_reranker("owner/model").folder == folder
    assert requests == [("owner/model", ["config.json", "tokenizer.json", "model.safetensors"])]


def test_a_failed_download_is_told(cache, monkeypatch):
    def snapshot_download(*_, **__):
        raise OSError("no network\nat all")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match="cannot load the reranker owner/model from the hub: no network;"):
        resolve_reranker("owner/model")
