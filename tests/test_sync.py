"""Indexes made equal to an export: what is added, replaced, deleted, left alone, and asked before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.live import corpus
from support.releases import contents as files

from qbe import BuildSettings, CorpusError, Paper, Reading, Sentence, UsageError
from qbe.cli.index import main
from qbe.corpus.identity import made_id
from qbe.corpus.reading import read_corpus
from qbe.corpus.sentences import split_sentences
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.update import append_papers, delete_papers, sync_papers

pytestmark = pytest.mark.slow

WORDS_ONLY = BuildSettings(dense=False)
SKIP = Reading(on_error="skip", max_rejected=1)


def paper(number: int, title: str | None = None, **metadata: object) -> Paper:
    sentences = Sentence(f"We study fish number {number}."), Sentence("They swim.")
    return Paper(f"k{number}", title or f"On fish number {number}", sentences, metadata=metadata)


def content(folder: Path) -> dict[str, tuple]:
    with Index(folder) as index:
        return {each.paper_id: (each.title, each.abstract, dict(each.metadata)) for each in index}


def counts(written) -> tuple[int, int, int, int]:
    return written.added, written.replaced, written.deleted, written.unchanged


@pytest.fixture
def index(tmp_path) -> Path:
    build(tmp_path / "index", [paper(number, year=2019) for number in range(20)], WORDS_ONLY)
    return tmp_path / "index"


def test_what_changed_is_written_and_nothing_else(index):
    others = [paper(number, year=2019) for number in range(3, 20)]
    retitled, retagged = paper(1, "On whales", year=2019), paper(2, year=2019, tags=["fish"])
    export = [paper(30), *reversed(others), retagged, retitled]
    written = sync_papers(index, export)
    assert counts(written) == (1, 2, 1, 17)
    assert (written.papers, written.generation, written.deleted_titles) == (20, 2, {"k0": "On fish number 0"})
    assert content(index) == {each.paper_id: (each.title, each.abstract, each.metadata) for each in export}
    before = files(index)
    same = replace(retagged, metadata={"tags": ["fish"], "year": 2019})
    written = sync_papers(index, [*others, retitled, same, paper(30)])
    assert (counts(written), written.generation) == ((0, 0, 0, 20), 2)
    assert files(index) == before
    assert counts(sync_papers(index, [paper(30), *others, retagged])) == (0, 0, 1, 19)  # a deletion alone
    with Index(index) as opened:
        assert (opened.generation, "k1" in opened) == (3, False)
        assert opened.sync([paper(30), *others]).papers == len(opened) == 18


@pytest.mark.parametrize(
    ("size", "left", "is_asked"),
    [(20, 18, False), (20, 17, True), (5, 4, False), (5, 3, True), (2, 1, False)],
)
def test_more_than_a_tenth_is_not_deleted_unasked(tmp_path, size, left, is_asked):
    folder = tmp_path / "index"
    export = [paper(number) for number in range(size)]
    build(folder, export, WORDS_ONLY)
    before = content(folder)
    if is_asked:
        with pytest.raises(UsageError, match=rf"found {size - left} of the {size} missing .* `overwrite`"):
            sync_papers(folder, export[:left])
        assert content(folder) == before
    with Index(folder) as index:
        assert index.sync(export[:left], overwrite=is_asked).papers == left


def test_an_export_that_cannot_be_used_changes_nothing(index, tmp_path):
    (tmp_path / "export.jsonl").write_text('{"paper_id": "k0", "title": "On fish", "abstract": " "}\n')
    (tmp_path / "empty.jsonl").write_text("")
    before = files(index)
    for export, reading in (("export", Reading()), ("export", SKIP), ("empty", SKIP)):
        with pytest.raises(CorpusError):
            sync_papers(index, tmp_path / f"{export}.jsonl", reading=reading)
    with pytest.raises(UsageError, match="`limit` is of no use with `sync`"):
        sync_papers(index, [paper(1)], reading=Reading(limit=1))
    assert files(index) == before


def test_a_paper_whose_record_is_broken_stays(index, tmp_path):
    lines = [json.dumps({"paper_id": "k0", "title": "On fish", "abstract": " "})]
    for number in range(2, 20):
        each = paper(number)
        record = {"paper_id": each.paper_id, "title": each.title, "abstract": each.abstract}
        lines.append(json.dumps({**record, "metadata": {"year": 2019}}))
    export = tmp_path / "export.jsonl"
    export.write_text("\n".join(lines))
    written = sync_papers(index, export, reading=SKIP)
    assert (written.kept, list(written.deleted_titles)) == (("k0",), ["k1"])
    assert written.left_out == {"no abstract": 1}
    assert content(index)["k0"][0] == "On fish number 0"
    # A record without an id may be any paper's: nothing is deleted for it unasked.
    export.write_text("\n".join(["{}", *lines[:-1]]))
    message = r"expected all papers .* 1 of the 19 missing .* and records without an id .*: 1"
    with pytest.raises(UsageError, match=message):
        sync_papers(index, export, reading=SKIP)
    assert sync_papers(index, export, reading=SKIP, overwrite=True).papers == 18
    listed = (tmp_path / "index.rejected.jsonl").read_text().splitlines()
    assert len(listed) == 2  # those of the last export alone


def test_files_are_read_as_when_the_index_was_built(tmp_path):
    export = tmp_path / "export.csv"
    export.write_text("name;heading;text\nk1;On fish;\nk2;On whales;Whales swim.\n".replace(";", ","))
    columns = {"id": "name", "title": "heading", "abstract": "text"}
    reading = Reading(columns=columns, keep_without_abstract=True)
    build(tmp_path / "index", export, WORDS_ONLY, reading=reading)
    with Index(tmp_path / "index") as index:
        assert counts(index.sync(export)) == (0, 0, 0, 2)


def test_what_the_index_has_is_appended_once_and_replaced_where_it_differs(index, capsys):
    export = [paper(0, year=2019), paper(1, "On whales"), paper(50)]
    written = append_papers(index, export)
    assert (counts(written), written.kept) == ((1, 0, 0, 1), ("k1",))
    assert written.left_out == {"papers that the index has with other content": 1}
    (listed,) = map(json.loads, index.with_name("index.rejected.jsonl").read_text().splitlines())
    assert (listed["where"], listed["reason"]) == ("k1", "papers that the index has with other content")
    before = content(index)
    assert counts(append_papers(index, [paper(0, year=2019)])) == (0, 0, 0, 1)
    assert counts(append_papers(index, export, update=True)) == (0, 1, 0, 2)
    assert content(index) == {**before, "k1": ("On whales", export[1].abstract, {})}
    delete_papers(index, ["k0"])
    assert counts(append_papers(index, export, update=True)) == (1, 0, 0, 2)  # a deleted paper is new


def test_the_command_says_what_it_did(index, tmp_path, capsys):
    def run(*numbers: int, options: tuple[str, ...] = ()) -> list[str]:
        export = corpus(tmp_path, "export", [paper(n, year=2019) for n in numbers])
        main(["--sync", "--corpus", export, "--output", str(index), *options])
        return [line.removeprefix(f"{index}: ") for line in capsys.readouterr().out.splitlines()]

    *told, done = run(*range(1, 21))
    assert told == ["deleted: On fish number 0 [k0]"]
    assert done.startswith("1 papers added, 0 replaced, 1 deleted, 19 unchanged, now 20, gen")
    with pytest.raises(UsageError, match="`overwrite`"):
        run(1)
    *told, done = run(30, options=("--overwrite",))
    assert len(told) == 20
    assert done.startswith("1 papers added, 0 replaced, 20 deleted, now 1, gen")


def test_a_paper_that_has_another_id_than_before_is_replaced(tmp_path):
    """Keys that were made anew, a key that was added, and a DOI that was: nothing is asked or lost."""

    def entry(key: str, number: int, more: str = "") -> str:
        fields = f"title = {{On the fish of river {number}}}, author = {{Lee, Ann}}, year = 2019, {more}"
        return f"@article{{{key}, {fields} abstract = {{Fish swim in river {number}.}}}}\n"

    def rows(*numbers: int, doi: str = "") -> str:
        text = "On the fish of pond {0},Fish swim in pond {0}.,2019,Ann Lee,{1}\n"
        return "".join(text.format(number, doi and f"{doi}/{number}") for number in numbers)

    export, table, folder = tmp_path / "export.bib", tmp_path / "export.csv", tmp_path / "index"
    header = "Title,Abstract,Year,Authors,DOI\n"
    unkeyed = entry("", 100) + entry("", 101)
    export.write_text(unkeyed + "".join(entry(f"key{number}", number) for number in range(20)))
    table.write_text(header + rows(*range(5)))
    build(folder, [str(export), str(table)], WORDS_ONLY)
    export.write_text("".join(entry(f"lee{number}", number) for number in range(1, 21)) + unkeyed)
    table.write_text(header + rows(3, 0) + rows(4, 1, 2, doi="10.1000"))
    written = sync_papers(folder, [str(export), str(table)])
    assert (counts(written), list(written.deleted_titles)) == ((1, 22, 1, 4), ["key0"])
    keys = {f"lee{number}" for number in range(1, 21)} | {f"10.1000/{number}" for number in (1, 2, 4)}
    assert keys < content(folder).keys()
    assert content(folder) == {
        each.paper_id: (each.title, each.abstract, dict(each.metadata))
        for each in read_corpus([str(export), str(table)], split_sentences)
    }

    nameless = [paper(number, f"On the fish of lake {number}") for number in range(3)]
    made = [replace(each, paper_id=made_id(each)) for each in nameless]
    dated = replace(nameless[0], paper_id="10.1000/0", metadata={"doi": "10.1000/0"})
    build(tmp_path / "made", made, WORDS_ONLY)
    assert append_papers(tmp_path / "made", [dated, nameless[1]]).kept == ("10.1000/0", "k1")
    written = append_papers(tmp_path / "made", [dated, nameless[1], made[1]], update=True)
    assert counts(written) == (1, 1, 0, 1)
    assert set(content(tmp_path / "made")) == {"10.1000/0", "k1", made[1].paper_id, made[2].paper_id}
    assert counts(sync_papers(tmp_path / "made", [dated, *nameless[1:]])) == (0, 1, 1, 2)


def test_one_paper_under_two_keys_and_two_under_one(tmp_path):
    """What the index holds afterwards is counted, whatever was recognized."""
    folder, export = tmp_path / "index", tmp_path / "export.bib"

    def sync(*entries: tuple[str, str]) -> tuple[int, int, int, int]:
        text = "@misc{%s, title = {%s}, author = {Lee, Ann}, year = 2019, abstract = {Fish swim.}}\n"
        export.write_text("".join(text % entry for entry in entries))
        written = sync_papers(folder, export)
        assert written.papers == len(content(folder)) == len(entries)
        return counts(written)

    first, second, third = "On fish in many rivers", "On fish in many lakes", "On whales in the sea"
    build(folder, [paper(1)], WORDS_ONLY)
    assert sync(("k1", first), ("k2", second), ("k3", third)) == (2, 1, 0, 0)
    assert sync(("k1", first), ("k1", second), ("k3", third)) == (0, 1, 0, 2)
    assert sync(("k1", second), ("k1", first), ("k3", third)) == (0, 2, 0, 1)
    assert sync(("a", first), ("b", second), ("c", third), ("d", third)) == (1, 3, 0, 0)
    assert sync(("a", first), ("b", second), ("e", third)) == (0, 1, 1, 2)


@pytest.mark.parametrize("update", [False, True])
def test_another_paper_under_a_key_of_the_index_is_added_as_in_a_build(tmp_path, update):
    entry = "@misc{{lee2019, title = {{{}}}, author = {{{}}}, year = 2019, abstract = {{Fish {}.}}{}}}\n"
    first, whole = entry.format("On fish in many rivers", "Lee, Ann", "swim", ""), tmp_path / "whole.bib"
    other = entry.format("Prices of auctions", "Lee, Bo", "cost", ", doi = {10.1000/7}")
    folder, export = tmp_path / "index", tmp_path / "export.bib"

    def append(*entries: str) -> tuple[int, int, int, int]:
        export.write_text("".join(entries))
        return counts(append_papers(folder, export, update=update))

    export.write_text(first)
    build(folder, export, WORDS_ONLY)
    whole.write_text(first + other)
    assert append(other) == (1, 0, 0, 0)
    assert list(content(folder)) == [each.paper_id for each in read_corpus([str(whole)], split_sentences)]
    assert append(other) == append(first) == (0, 0, 0, 1)
    assert append(other, first) == (0, 0, 0, 2)  # each under the key of the other
    changed = first.replace("in many", "of all the"), other.replace("cost", "pay")
    assert append(*changed) == ((0, 2, 0, 0) if update else (0, 0, 0, 0))
    assert len(content(folder)) == 2
    nameless = "TY  - JOUR\nTI  - Editorial\nPY  - 2019\nAU  - Smith, {0}\nAB  - {0} says.\nER  -\n"
    export = tmp_path / "export.ris"
    done = [append(nameless.format(name)) for name in ("Anna", "Bob", "Anna", "Bob")]
    assert done == [(1, 0, 0, 0)] * 2 + [(0, 0, 0, 1)] * 2


@pytest.mark.parametrize("by", ["title", "doi"])
def test_papers_that_repeat_one_of_the_index_are_left_out_where_that_is_asked(tmp_path, by):
    folder, reading = tmp_path / "index", Reading(dedupe=by)
    first = paper(1, year=2019, authors=["Ann Lee"], doi="10.1000/7")
    build(folder, [first], WORDS_ONLY)
    new = corpus(tmp_path, "new", [replace(first, paper_id="x"), paper(2)])
    assert append_papers(folder, new, reading=reading).left_out == {"duplicate": 1}
    assert counts(append_papers(folder, new, reading=reading, update=True)) == (0, 0, 0, 1)
    assert list(content(folder)) == ["k1", "k2"]
    assert counts(append_papers(folder, new)) == (1, 0, 0, 1)


@pytest.mark.parametrize("change", ["append", "update", "sync"])
def test_what_pubmed_says_is_deleted_is(tmp_path, change):
    def article(pmid: int, title: str) -> str:
        return (
            f"<PubmedArticle><MedlineCitation><PMID>{pmid}</PMID><Article><ArticleTitle>{title}</ArticleTitle>"
            "<Abstract><AbstractText>Fish swim.</AbstractText></Abstract></Article></MedlineCitation>"
            "</PubmedArticle>"
        )

    def release(*records: str) -> str:
        file = tmp_path / "release.xml"
        file.write_text(f"<?xml version='1.0'?><PubmedArticleSet>{''.join(records)}</PubmedArticleSet>")
        return str(file)

    folder = tmp_path / "index"
    build(folder, release(*(article(number, f"Fish {number}") for number in range(1, 5))), WORDS_ONLY)
    deletions = "<DeleteCitation><PMID>2</PMID><PMID>3</PMID><PMID>9</PMID></DeleteCitation>"
    file = release(article(1, "Whales"), article(4, "Fish 4"), article(5, "Fish 5"), deletions)
    with Index(folder) as index:
        written = index.sync(file) if change == "sync" else index.append(file, update=change == "update")
        assert counts(written) == ((1, 0, 0, 1) if change == "append" else (1, 1, 2, 1))
        left = ["1", "2", "3", "4", "5"] if change == "append" else ["1", "4", "5"]
        assert sorted(paper.paper_id for paper in index) == left
