"""Grades by hand over HTTP and on the page, one real server and a real browser."""

import subprocess
import sys

import pytest
from support.browser import expect, opened
from support.serving import serving

from qbe.label.pairs import Pair, write_pairs
from qbe.runs import read_graded_pairs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labels")


@pytest.fixture(scope="module")
def server(tiny_index, folder):
    pairs = folder / "pairs.tsv"
    write_pairs(pairs, [Pair("s036", each, "far") for each in ("s051", "s007", "s124")], [(3, 3, 3)] * 3)
    options = ("--pairs", str(pairs), "--labels", str(folder / "grades"))
    with serving(tiny_index, folder / "log", *options) as running:
        yield running


def test_an_assessor_sees_texts_alone(server):
    answer = server.ask("GET", "/api/labels?assessor=cy").json()
    assert (answer["graded"], answer["total"]) == (0, 3)
    assert answer["pair"].keys() == {"query_id", "paper_id", "query", "candidate"}
    assert answer["pair"]["query"].keys() == answer["pair"]["candidate"].keys() == {"title", "abstract"}
    assert "nearly identical" in answer["guideline"]


def test_what_is_wrong_is_told_and_writes_nothing(server, folder, told):
    right = {"assessor": "di", "query_id": "s036", "paper_id": "s051"}
    right |= {"background": 0, "method": 1, "result": 2}
    wrong: list[dict] = [{"background": 4}, {"method": True}, {"result": None}]
    wrong += [{"paper_id": "s001"}, {"assessor": "../di"}, {"rank": 1}]
    answers = [server.ask("POST", "/api/labels", right | each) for each in wrong]
    told("grades over HTTP", [f"{answer.status} {answer.message}" for answer in answers])
    assert not list(folder.glob("**/*di.tsv"))
    foreign = {"Origin": "https://example.org", "Content-Type": "text/plain"}
    assert server.ask("POST", "/api/labels", right, foreign).status == 415
    assert server.ask("POST", "/api/labels", right).status == 200
    assert list(read_graded_pairs(folder / "grades" / "di.tsv")) == ["s036"]


def test_a_folder_of_grades_belongs_to_one_server(server, tiny_index, folder):
    command = [sys.executable, "-m", "qbe", "serve", "--index", tiny_index, "--port", "0"]
    command += ["--pairs", folder / "pairs.tsv", "--labels", folder / "grades"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "choose another --labels" in done.stderr


def test_pairs_are_graded_with_the_keyboard(server, folder):
    with opened() as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/label.html")
        page.fill("#assessor", "ann")
        page.keyboard.press("Enter")
        expect(page.locator("#progress")).to_have_text("0 of 3 pairs")
        for keys in (["3", "1", "Backspace", "2", "0"], ["0", "0", "0"]):
            for key in keys:
                page.keyboard.press(key)
            title = page.text_content("#candidate-title")
            page.keyboard.press("Enter")
            expect(page.locator("#candidate-title")).not_to_have_text(title)
        page.keyboard.press("Backspace")  # corrects the second pair
        expect(page.locator("#candidate-title")).to_have_text(title)
        page.check("#facet-result label:nth-of-type(2) input")
        page.click("#save")
        expect(page.locator("#candidate-title")).not_to_have_text(title)
        expect(page.locator("#progress")).to_have_text("2 of 3 pairs")
        graded = sorted(pair.grades for pair in read_graded_pairs(folder / "grades" / "ann.tsv")["s036"])
        assert graded == [(0, 0, 1), (3, 2, 0)]
        page.reload()
        expect(page.locator("#progress")).to_have_text("2 of 3 pairs")
        for key in ("1", "1", "1", "Enter"):
            page.keyboard.press(key)
        expect(page.locator("#done")).to_be_visible()
