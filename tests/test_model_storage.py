"""Folders of the small models (citation, grade, projection): one line for what cannot be read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qbe.cite import recommender as citation
from qbe.errors import ModelError
from qbe.models import cards as grade
from qbe.models.cards import Storage
from qbe.models.folders import resolve_encoder
from qbe.search import projections as projection
from qbe.search.grading import FEATURES


class Kind(NamedTuple):
    storage: Storage
    read: Callable[[Path], Any]

    @property
    def expected(self) -> str:
        return f"expected a {self.storage.kind} model ({self.storage.card}, {self.storage.weights})"


KINDS = [
    Kind(Storage("citation", "citation"), citation.read_model),
    Kind(Storage("grade", "grades"), lambda folder: grade.read_model(folder, FEATURES)),
    Kind(Storage("projection", "facet-projections"), projection.read_model),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.storage.kind)
def kind(request) -> Kind:
    return request.param


@pytest.fixture
def folder(tmp_path, kind) -> Path:
    for name in (kind.storage.card, kind.storage.weights):
        (tmp_path / name).write_bytes((kind.storage.shipped / name).read_bytes())
    return tmp_path


def refused(kind: Kind, folder: Path) -> str:
    with pytest.raises(ModelError) as raised:
        kind.read(folder)
    message = str(raised.value)
    assert "\n" not in message
    return message


def change(folder: Path, kind: Kind, **changed: object) -> None:
    card = json.loads((folder / kind.storage.card).read_text()) | changed
    kept = {name: value for name, value in card.items() if value is not None}
    (folder / kind.storage.card).write_text(json.dumps(kept))


def test_each_model_that_ships_reads_one_encoder_and_the_default_the_default_one(kind):
    for folder in (path.parent for path in grade.PACKAGE.glob(f"{kind.storage.stem}*/{kind.storage.card}")):
        assert kind.storage.shipped_for(kind.read(folder).encoder) == folder
    assert kind.read(kind.storage.shipped).encoder == resolve_encoder("facet-encoder", "int8").identity


def test_a_copy_is_read(kind, folder):
    assert kind.read(folder).encoder == kind.read(kind.storage.shipped).encoder


def test_an_absent_model(kind, tmp_path):
    assert re.fullmatch(
        rf"\S+/nowhere: {re.escape(kind.expected)}, found: .*No such file.*; give its folder, or train one "
        rf"with qbe train {kind.storage.stem}",
        refused(kind, tmp_path / "nowhere"),
    )


def test_damaged_weights(kind, folder):
    path = folder / kind.storage.weights
    path.write_bytes(path.read_bytes()[:-1])
    assert re.search(r"npz: expected SHA-256 \w+, found \w+; fetch it again", refused(kind, folder))
    path.unlink()
    assert "found no file" in refused(kind, folder)


def test_a_damaged_card(kind, folder):
    for data in (b"", b"[]", b"7", b"{}", b'{"format": 1}', b"{", b"\xff"):
        (folder / kind.storage.card).write_bytes(data)
        assert refused(kind, folder).startswith(f"{folder}: {kind.expected}, found: ")


def test_another_format_or_a_card_that_lacks_a_field(kind, folder):
    whole = (folder / kind.storage.card).read_text()
    features = (["tokens"], {"text": ["bm25"]}, {"vectors": ["whole"]})
    for changed in ({"format": 2}, *({"features": each} for each in features)):
        change(folder, kind, **changed)
        assert refused(kind, folder) == (
            f"{folder}: expected a {kind.storage.kind} model of format 1, found another; train it again with "
            f"qbe train {kind.storage.stem}"
        )
        (folder / kind.storage.card).write_text(whole)
    for name in ("files", "encoder", "training"):
        change(folder, kind, **{name: None})
        assert f"found: KeyError('{name}'); give its folder" in refused(kind, folder)
        (folder / kind.storage.card).write_text(whole)
