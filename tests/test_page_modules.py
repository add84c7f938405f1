"""Modules of the page that need no browser, run by node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import qbe

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
PAGE = Path(qbe.__file__).parent / "serve" / "page"


def run(script: str, *given: object) -> Any:
    names = {"state": "EMPTY, read, requestOf, stateOf, write", "plain": "parsed, readable"}
    imports = "".join(
        f"import {{ {each} }} from {json.dumps(f'{PAGE}/{name}.js')};\n" for name, each in names.items()
    )
    source = f"{imports}const given = {json.dumps(given)};\nconsole.log(JSON.stringify({script}));"
    command = ["node", "--input-type=module", "-e", source]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


KEPT = [
    {"paper_ids": ["s1"], "like": ["competitors"]},
    {"paper_ids": ["s1"], "like": ["result"], "unlike": ["method"]},
    {"paper_ids": ["s1"], "facet": "method", "authors": ["Ann Lee"], "where": ["venue=SIGIR"]},
    {"text": "We count.", "title": "On fish", "like": ["method:0.1"], "not_paper_ids": ["s2"]},
]


@pytest.mark.parametrize("kept", KEPT)
def test_a_search_that_is_kept_is_opened_as_it_is(kept):
    state = "read(write({ ...EMPTY, ...stateOf(given[0]) }))"
    opened = run(f"requestOf({state})", kept)
    assert {name: value for name, value in opened.items() if value not in ([], 20)} == kept


@pytest.mark.parametrize(
    "kept", [{"paper_ids": ["s1"], "facet": "method"}, {"text": "We.", "explore": "competitors"}]
)
def test_what_the_page_can_show_it_shows(kept):
    assert run("stateOf(given[0])", kept)["kept"] == ""


def test_names_and_kept_searches_are_as_they_are_and_formulas_are_read():
    watch = {"name": "Solvers of $x^2$", "search": {"paper_ids": ["a$x_1$b"], "text": "We solve $x^2$."}}
    found = run(
        "parsed(JSON.stringify(given[0]))", {"watches": [{**watch, "papers": [{"title": "On $x^2$"}]}]}
    )
    assert found == {"watches": [{**watch, "papers": [{"title": "On x²"}]}]}
    assert run('readable("title", given[0])', r"$\constructor x$") == "constructor x"
