"""The tiny models of random weights that the tests search with. With ``--shared DIR`` they are kept, for
tests in an environment without PyTorch, in which they cannot be made (`make test-light`).
"""

from pathlib import Path

import pytest

from qbe.models.cards import CROSS_ENCODER, ENCODER, JOINT_GRADER, JOINT_MODEL, TAGGER

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("tiny_model", {"model.safetensors"}),
        ("tiny_encoder", {ENCODER.metadata_file, "model.int8.onnx"}),
        ("tiny_tagger", {TAGGER.metadata_file}),
        ("tiny_classifier", {"model.safetensors"}),
        ("tiny_cross_encoder", {CROSS_ENCODER.metadata_file}),
        ("tiny_reranker_weights", {"model.safetensors"}),
        ("tiny_joint_grades", {JOINT_GRADER.metadata_file, JOINT_MODEL}),
    ],
)
def test_tiny_models_have_the_files_of_their_kind(request, name, files):
    folder: Path = request.getfixturevalue(name)
    assert files <= {path.name for path in folder.iterdir()}
