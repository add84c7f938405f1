"""Technique words learned from the titles of a small corpus."""

import numpy as np
import pytest
from support.trainings import write

from qbe.models.words import FILE, TechniqueWords
from qbe.train.grades import WordsRecipe, WordsTraining, slots_of
from qbe.train.work import RunOptions, Sources, run_training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("title", "slots"),
    [
        ("Traffic forecasting with graph networks", ("graph networks", "Traffic forecasting")),
        ("Graph networks for traffic forecasting", ("Graph networks", "traffic forecasting")),
        ("GNN: Parsing via search for speed", ("search for speed", "Parsing")),
        ("A survey of parsing", None),
    ],
)
def test_titles_name_a_technique_and_a_problem(title, slots):
    assert slots_of(title) == slots


def test_words_of_titles_lean_and_papers_of_dev_are_left_out(tmp_path):
    titles = ["Kernels for parsing", "Kernels for tagging", "Parsing using kernels", "Traffic by magic"]
    papers = (
        {"paper_id": str(n), "title": each, "abstract": ["We count words."]} for n, each in enumerate(titles)
    )
    corpus = write(tmp_path / "corpus.jsonl", *papers)
    dev = tmp_path / "dev.tsv"
    dev.write_text("query_id\tpaper_id\tbackground\tmethod\tresult\n3\t3\t0\t0\t0\n")
    output, sources = tmp_path / "output", Sources(corpus=corpus, dev=(dev,))
    training, run = WordsTraining(WordsRecipe(papers=1)), RunOptions((0,), given="technique-words --dev x")
    run_training(training, sources, output, tmp_path / "work", run)
    words, card = TechniqueWords.read(output / FILE), (output / "README.md").read_text()
    assert f"{len(words.terms)} words and pairs" in card
    assert "\n- Command: `qbe train technique-words --dev x`\n" in card
    assert "magic" not in words.terms
    lean = dict(zip(words.terms, words.lean.tolist(), strict=True))
    assert lean["kernel"] > 0 > lean["parsing"]
    assert lean["count"] == 0
    idf = dict(zip(words.terms, words.idf.tolist(), strict=True))
    assert idf["kernel"] == pytest.approx(np.log(1 + 0.5 / 3.5), abs=1e-3)  # in all three papers
