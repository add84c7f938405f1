"""``qbe tag``: what it keeps and what it writes, whole or not at all."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.trainings import write

from qbe.cli.tag import main
from qbe.corpus.json_formats import read_jsonl
from qbe.corpus.records import paper_to_record, parse_paper
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError, OutputError
from qbe.models.encoder import Encoder
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.types import FacetProbabilities, Paper

pytestmark = pytest.mark.slow

COUNTED = "Fish swim. We count them, e.g. cod. It works!"
STRING = {"paper_id": "a", "title": "On splitting", "abstract": COUNTED}
LIST = {"paper_id": 7, "title": "As it is", "abstract": ["One. Two.", "three"]}
LIST |= {"metadata": {"year": 1999}, "source": {"any": ["thing", None]}}
GIVEN = {"paper_id": "c", "title": "", "abstract": ["To aim.", "To do.", "Thanks."], "x": 1}
GIVEN |= {"pred_labels": ["objective_label", "method_label", "other_label"]}


@pytest.fixture(scope="module")
def tagging(tiny_encoder, tiny_tagger) -> TaggingEncoder:
    return TaggingEncoder(Encoder.open(str(tiny_encoder)), Tagger.open(str(tiny_tagger)), "predicted")


@pytest.fixture(scope="module")
def expected(tagging) -> Callable[[dict], Paper]:
    """A record's paper as the tagger labels it."""
    return lambda record: tagging.encode_paper(parse_paper(record, "", split_sentences))[0]


def labels(paper: Paper) -> list[str]:
    return [f"{sentence.probabilities.label}_label" for sentence in paper.sentences]


@pytest.fixture
def tag(tmp_path, tagging, tiny_tagger):
    """Tag records, or a file, by the command line in this process; gives the records written."""
    output = tmp_path / "out" / "tagged.jsonl"

    def run(*given: object, options: Sequence[str] = ()) -> list[dict]:
        output.unlink(missing_ok=True)
        source = given[0] if isinstance(given[0], Path) else write(tmp_path / "in.jsonl", *given)
        files = ("--input", str(source), "--output", str(output))
        main([*files, "--tagger", str(tiny_tagger), "--threads", "1", *options])
        return [json.loads(line) for line in output.read_text().splitlines()]

    run.output = output  # type: ignore[attr-defined]
    return run


def test_strings_are_split_and_lists_kept(tag, expected):
    first, second = tag(STRING, LIST)
    assert first == {
        "paper_id": "a",
        "title": "On splitting",
        "abstract": ["Fish swim.", "We count them, e.g. cod.", "It works!"],
        "pred_labels": labels(expected(STRING)),
        "sentence_offsets": [[0, 10], [11, 35], [36, 45]],
    }
    assert second == {**LIST, "pred_labels": labels(expected(LIST))}
    assert list(second) == [*LIST, "pred_labels"]


def test_headings_of_a_structured_abstract_decide(tag):
    text = "AIM: To count cod. METHODS: We cast a net. RESULTS: Two cod. CONCLUSIONS: They are few."
    (tagged,) = tag({**STRING, "abstract": f"Fish swim. {text}"}, options=("--facets", "predicted"))
    texts = ["Fish swim.", "To count cod.", "We cast a net.", "Two cod.", "They are few."]
    assert tagged["abstract"] == texts
    assert tagged["pred_labels"][1:] == ["objective_label", "method_label", "result_label", "other_label"]


def test_given_labels_are_kept_unless_all_are_predicted(tag, expected):
    assert tag(GIVEN, STRING)[0] == GIVEN
    (again,) = tag(GIVEN, options=("--facets", "predicted"))
    assert again == {**GIVEN, "pred_labels": labels(expected(GIVEN))}
    assert again["pred_labels"] != GIVEN["pred_labels"]


def test_probabilities(tag, expected):
    first, given = tag(STRING, GIVEN, options=["--probabilities"])
    assert "pred_probabilities" not in given
    shares = [list(sentence.probabilities) for sentence in expected(STRING).sentences]
    assert first["pred_probabilities"] == [[round(share, 4) for share in row] for row in shares]
    for row, label in zip(first["pred_probabilities"], first["pred_labels"], strict=True):
        assert sum(row) == pytest.approx(1, abs=2e-3)
        assert f"{FacetProbabilities(*row).label}_label" == label
    # Tagged once more they stay, but for those that belong to labels that were replaced.
    assert tag(first) == [first]
    (again,) = tag(first, options=("--facets", "predicted"))
    assert again == {name: value for name, value in first.items() if name != "pred_probabilities"}


def test_what_is_written_is_a_corpus_to_qbe(tag, papers, expected):
    raw = [{**paper_to_record(paper), "pred_labels": None} for paper in papers[:8]]
    tag(*raw)
    for paper, record in zip(read_jsonl(tag.output), raw, strict=True):
        folded = [label.replace("objective", "background") for label in labels(expected(record))]
        assert paper_to_record(paper) == {**record, "pred_labels": folded}


def test_both_standard_streams(tag, tiny_tagger):
    tag(STRING, LIST, GIVEN)
    source = b"".join(json.dumps(record).encode() + b"\n" for record in (STRING, LIST, GIVEN))
    line = [sys.executable, "-m", "qbe", "tag", "--input", "-", "--output", "-", "--tagger", str(tiny_tagger)]
    done = subprocess.run(line, input=source, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == tag.output.read_bytes()


def test_broken_input_leaves_nothing(tag, tmp_path):
    source = write(tmp_path / "broken.jsonl", STRING, STRING)
    source.write_text(source.read_text() + '{"paper_id": \n' + json.dumps(STRING) + "\n")
    with pytest.raises(CorpusError, match=r"broken.jsonl, line 3: expected one JSON object a line, found "):
        tag(source)
    source.write_text("7\n")
    with pytest.raises(CorpusError, match="line 1: expected a JSON object, found a number"):
        tag(source)
    assert not any(tag.output.parent.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(tmp_path, tiny_tagger):
    source = write(tmp_path / "in.jsonl", STRING)
    line = ["--input", str(source), "--output", "/dev/full", "--tagger", str(tiny_tagger), "--threads", "1"]
    with pytest.raises(OutputError, match="cannot write /dev/full: No space left on device; free some space"):
        main(line)
