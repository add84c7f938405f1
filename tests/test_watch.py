"""Searches that are kept: what is new for them is reported once, whatever happens, and in all formats."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from support.builds import interrupt
from support.serving import serving, wait_until

from qbe import Facet, FileFormatError, Hit, Paper, PaperNotFoundError, QbeError, Query, UsageError
from qbe.cli import common
from qbe.cli.watch import main
from qbe.feeds import watches as feeds
from qbe.feeds.watches import Watch, read_watches, watch_of
from qbe.index.build import build
from qbe.index.index import Index
from qbe.index.source import BuildSettings
from qbe.index.update import append_papers, delete_papers
from qbe.search.queries import distinct_papers
from qbe.search.request import SearchForm

pytestmark = pytest.mark.slow

OLD, NEW = 9, 9  # how many papers the index begins with, and how many come later


@pytest.fixture(scope="module")
def some(papers) -> list[Paper]:
    """Of the papers of the sample; s036 is among the first, and those that come later are s116 to s124."""
    return [*papers[: OLD - 1], papers[35], *papers[115 : 115 + NEW]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory, some) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "index"
    build(folder, some[:OLD], BuildSettings(bm25=False))
    return folder


@pytest.fixture
def index(begun, tmp_path) -> Path:
    """An index of the first papers of the sample."""
    return Path(shutil.copytree(begun, tmp_path / "index"))


@pytest.fixture
def watch(index, tmp_path, capsys, monkeypatch):
    """Carries out a command in a folder, and gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(command: str, *options: object, code: int = 0) -> str:
        given = ["--index", str(index)] if command in ("add", "run") else []
        with pytest.raises(SystemExit) as ended:
            common.run("qbe watch", main, [command, *map(str, options), *given])
        assert ended.value.code == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def found_in(watches: feeds.Watches) -> set[tuple[str, str]]:
    return {(name, each.paper_id) for name, watch in watches.watches.items() for each in watch.found}


def searched(folder: Path, watches: feeds.Watches) -> dict[str, QbeError]:
    with Index(folder) as index, feeds.watch_session(index) as session:
        return feeds.find(watches, session)


def kept(folder: Path, *watches: Watch) -> feeds.Watches:
    with Index(folder) as index:
        content = feeds.Watches(known=[each.paper_id for each in index])
    for each in watches:
        content.add(each)
    return content


def test_what_is_found_is_what_grades_say_of_the_new_papers(index, some):
    bodies = {facet.value: {"paper_ids": ["s036"], "facet": facet.value} for facet in Facet}
    bodies["whole"] = {"paper_ids": ["s036"]}
    content = kept(index, *(watch_of(name, SearchForm(**body), 0.1) for name, body in bodies.items()))
    append_papers(index, some[OLD:])
    assert searched(index, content) == {}
    expected = {}
    with Index(index) as opened, feeds.watch_session(opened) as session:
        query = Query.by_facets(opened.paper("s036"), dict.fromkeys(Facet, 1.0))
        for hit in session.grade(query, [Hit(each.paper_id, 0) for each in some[OLD:]]):
            for name, grade in {**hit.grades, "whole": max(hit.grades.values())}.items():
                if grade >= 0.1:
                    expected.setdefault(name, {})[hit.paper_id] = grade
    assert set(expected) == set(bodies)
    for name, watch in content.watches.items():
        grades = [each.grade for each in watch.found]
        assert grades == sorted(grades, reverse=True)
        assert {each.paper_id: each.grade for each in watch.found} == expected[name]


def test_a_paper_is_new_once_whatever_becomes_of_it_and_of_the_index(index, some, tmp_path):
    late = Paper("late", some[OLD + 7].title, some[OLD + 7].sentences, True, {"year": 1950})
    content = kept(index, watch_of("all", SearchForm(paper_ids=["s036"]), 0))
    assert searched(index, content) == {}
    assert found_in(content) == set()
    append_papers(index, [some[OLD], some[OLD + 1]])
    searched(index, content)
    first = {("all", some[OLD].paper_id), ("all", some[OLD + 1].paper_id)}
    assert found_in(content) == first
    delete_papers(index, [some[OLD].paper_id])
    append_papers(index, [late])
    changed = Paper(some[OLD + 1].paper_id, "Another title", some[3].sentences, True)
    append_papers(index, [changed], update=True)
    searched(index, content)
    append_papers(index, [some[OLD]])  # comes back
    searched(index, content)
    assert found_in(content) == first | {("all", "late")}
    anew = tmp_path / "anew"
    build(anew, [*some[: OLD + 3], late], BuildSettings(bm25=False))
    searched(anew, content)
    assert found_in(content) == first | {("all", "late"), ("all", some[OLD + 2].paper_id)}
    assert len(content.watches["all"].found) == 4
    content.add(watch_of("later", SearchForm(paper_ids=["s036"]), 0))
    searched(anew, content)
    assert not content.watches["later"].found  # what was there when it was added is old


def test_a_search_that_fails_sees_its_new_papers_another_time(index, some, tmp_path):
    cited = tmp_path / "cited.txt"
    content = kept(index, Watch("bib", {}, 0, str(cited)), watch_of("all", SearchForm(paper_ids=["s036"]), 0))
    append_papers(index, some[OLD:])
    assert list(searched(index, content)) == ["bib"]
    assert len(found_in(content)) == len(some) - OLD
    cited.write_text(f"{some[OLD].paper_id}\ns036\n")
    assert searched(index, content) == {}
    found = {paper_id for name, paper_id in found_in(content) if name == "bib"}
    assert found == {each.paper_id for each in some[OLD + 1 :]}  # but its own


def test_of_a_bibliography_the_best_grade_counts(index, some, tmp_path, monkeypatch):
    monkeypatch.setattr("qbe.feeds.watches.MAX_PAPERS", OLD - 2)
    cited = tmp_path / "cited.txt"
    names = [each.paper_id for each in some[: OLD - 1]]  # more than a search takes
    cited.write_text("".join(f"{name}\n" for name in names))
    each_alone = [watch_of(name, SearchForm(paper_ids=[name], facet="method"), 0) for name in names]
    content = kept(index, Watch("bib", {"facet": "method"}, 0, str(cited)), *each_alone)
    append_papers(index, some[OLD:])
    assert searched(index, content) == {}
    bib = {each.paper_id: each.grade for each in content.watches.pop("bib").found}
    best = dict.fromkeys(bib, 0.0)
    for watch in content.watches.values():
        for each in watch.found:
            best[each.paper_id] = max(best[each.paper_id], each.grade)
    assert bib == best


def test_filters_and_explorations_count(index, some):
    exploration = SearchForm(paper_ids=["s036"], explore="same-problem-other-method")
    filtered = SearchForm(paper_ids=["s036"], year_from=2021)
    content = kept(index, watch_of("other", exploration, 0), watch_of("recent", filtered, 0))
    append_papers(index, some[OLD:])
    assert searched(index, content) == {}
    years = {each.paper_id: int(each.year) for each in some}
    recent = {paper_id for name, paper_id in found_in(content) if name == "recent"}
    assert recent == {each.paper_id for each in some[OLD:] if years[each.paper_id] >= 2021}
    with Index(index) as opened, feeds.watch_session(opened) as session:
        request = replace(exploration, k=100).request(opened)
        scores = {hit.paper_id: hit.score for hit in session.search(request, rerank=False).hits}
    for each in content.watches["other"].found:
        if each.paper_id in scores:
            assert each.grade == pytest.approx(3 * scores[each.paper_id], abs=1e-4)


def test_the_command_keeps_lists_runs_and_removes(watch, index, some):
    said = watch("add", "fish", "--paper", "s036", "--facet", "method", "--grade", "0.3")
    assert "fish: new papers of grade 0.3 or more" in said
    Path("draft.txt").write_text(f"{some[OLD + 5].title}\n\n{some[OLD + 5].abstract}\n")
    watch("add", "text", "--paper-file", "draft.txt")
    Path("refs.txt").write_text("s001\ns002\n")
    watch("add", "bib", "--cited", "refs.txt", "--like", "background", "--unlike", "method")
    listed = watch("list")
    assert "fish: like s036; by method; grade 0.3 or more; 0 found, 0 not yet reported\n" in listed
    assert "bib: like those of " in listed
    assert "; the same background; not the same method; grade 0.5 or more" in listed
    assert watch("run") == "nothing new\n"
    append_papers(index, some[OLD:])
    table = watch("run")
    assert re.match(r"fish: \d papers\n  \d\.\d\d  s1\d\d  20\d\d  ", table)
    assert re.search(r"^text: \d papers?\n  [23]\.\d\d  s121  ", table, re.MULTILINE)
    assert watch("run") == "nothing new\n"
    again = [*map(json.loads, watch("run", "--since", "2026-01-01", "--format", "json").splitlines())]
    assert table.count("\n  ") == len(again)
    fields = {"watch", "paper_id", "grade", "found", "title", "year", "authors", "links", "abstract"}
    assert set(again[0]) >= fields
    assert watch("run", "--since", "2999-01-01", "--format", "json") == ""
    watch("remove", "fish")
    assert list(read_watches("watches.json").watches) == ["text", "bib"]


def test_a_report_that_fails_is_made_by_the_next_run(watch, index, some, monkeypatch):
    watch("add", "all", "--paper", "s036", "--grade", "0")
    append_papers(index, some[OLD:])
    with monkeypatch.context() as patched:
        patched.setattr("qbe.util.files.os.fsync", _fails)
        patched.setattr("qbe.feeds.watches.write_text", lambda path, text: Path(path).write_text(text))
        assert "cannot write new.md" in watch("run", "--output", "new.md", code=1)
    assert not Path("new.md").exists()
    assert [each.reported for each in read_watches("watches.json").watches["all"].found] == [False] * NEW
    watch("run", "--output", "new.md")
    assert Path("new.md").read_text().startswith(f"## all: {NEW} papers\n\n- **")
    watch("run", "--output", "new.md", "--overwrite")
    assert Path("new.md").read_text() == "nothing new\n"

    append = Path("watches.json").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("qbe.feeds.watches.grade_of", interrupt)
        append_papers(index, [Paper("x", some[3].title, some[3].sentences, True)])
        watch("run", code=130)
    assert Path("watches.json").read_bytes() == append
    assert watch("run").count("\n  ") == 1


def test_a_paper_that_left_the_index_before_the_report_is_reported_once_it_is_back(watch, index, some):
    watch("add", "first", "--paper", "s036", "--grade", "0")
    append_papers(index, some[OLD : OLD + 2])
    watch("add", "second", "--paper", "s001", "--grade", "0")
    gone = some[OLD].paper_id
    delete_papers(index, [gone])
    assert f"  {some[OLD + 1].paper_id}  " in watch("run")
    assert watch("run") == "nothing new\n"
    append_papers(index, [some[OLD]])
    assert re.fullmatch(rf"first: 1 paper\n  \d\.\d\d  {gone}  .*\n", watch("run"))
    assert watch("run") == "nothing new\n"


def _fails(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_feed_has_what_was_found_under_ids_that_stay(watch, index, some):
    hostile = Paper(
        "h1",
        "A <b>\ufffe\x0btitle</b> & more",
        some[OLD + 5].sentences,
        True,
        {"url": "https://example.org/1", "authors": ["Ann & Bo"], "et_al": True},
    )
    watch("add", "a <watch>", "--paper", "s001", "--grade", "0")
    append_papers(index, [hostile])
    watch("run")
    watch("run", "--output", "feed.xml")
    append_papers(index, some[OLD : OLD + 2])
    before = ElementTree.parse("feed.xml").getroot()
    watch("run", "--output", "feed.xml", "--overwrite")
    after = ElementTree.parse("feed.xml").getroot()
    names = {"a": feeds.ATOM}
    (entry,) = before.findall("a:entry", names)
    assert entry.findtext("a:title", None, names) == "A <b> title</b> & more"
    assert entry.find("a:link", names).get("href") == "https://example.org/1"
    assert [each.text for each in entry.findall("a:author/a:name", names)] == ["Ann & Bo"]
    assert entry.find("a:category", names).get("term") == "a <watch>"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.findtext("a:updated", None, names))
    ids = [each.findtext("a:id", None, names) for each in after.findall("a:entry", names)]
    assert len(set(ids)) == 3
    assert entry.findtext("a:id", None, names) in ids
    assert before.findtext("a:id", None, names) == after.findtext("a:id", None, names)


def test_what_cannot_be_watched_is_told(watch, index, told, tiny_index, tmp_path):
    Path("notes.md").write_text("# Notes\n")
    messages = [
        watch("run", code=2),
        watch("run", "--since", "20.11.2026", code=2),
        watch("add", "x", "--paper", "nosuch", code=1),
        watch("add", " ", "--paper", "s036", code=2),
        watch("add", "x", "--paper", "s036", "--grade", "4", code=2),
        watch("add", "x", "--paper", "s036", "--unlike", "method", code=2),
        watch("add", "x", "--text", "Fish swim.", "--year", "query", code=2),
        watch("add", "x", "--cited", "nosuch.bib", code=1),
        watch("remove", "x", code=2),
    ]
    watch("add", "x", "--paper", "s036")
    messages += [watch("add", "x", "--paper", "s036", code=2), watch("run", "--output", "notes.md", code=1)]
    Path("watches.json").write_text('{"watches": []}')
    messages.append(watch("list", code=1))
    told("watch", [message.strip().replace(f"{tmp_path}/", "") for message in messages])
    with Index(tiny_index) as opened, pytest.raises(UsageError, match="grade"):
        feeds.watch_session(opened)
    with pytest.raises(FileFormatError):
        read_watches("notes.md")


def test_a_watch_keeps_the_papers_that_names_stand_for(watch, index, some, tmp_path):
    title = some[OLD - 1].title
    watch("add", "part", "--paper", title[:40], title, "--not-paper", "S001", "--grade", "0")
    kept = {"paper_ids": ["s036"], "not_paper_ids": ["s001"]}
    assert read_watches("watches.json").watches["part"].search == kept
    append_papers(index, [Paper("like", f"{title}, Again", some[OLD + 5].sentences, True)])
    assert watch("run").startswith("part: 1 paper\n")
    with Index(index) as opened:
        search = {"paper_ids": [title], "not_paper_ids": ["S001"]}
        (added,) = feeds.Watcher(tmp_path / "other.json", opened).add("x", SearchForm(**search))["watches"]
    assert added["search"] == kept


def test_a_server_shows_what_went_wrong_with_a_watch(index, some, tmp_path):
    file = tmp_path / "watches.json"
    feeds.write_watches(file, kept(index, Watch("bib", {}, 0, str(tmp_path / "none.txt"))))
    with Index(index) as opened:
        watcher = feeds.Watcher(file, opened)
        watcher.add("all", SearchForm(paper_ids=["s036"]), 0)
        append_papers(index, some[OLD:])
        watcher.find()
        problems = {each["name"]: each["problem"] for each in watcher.records()["watches"]}
        assert problems.keys() == {"bib", "all"}
        assert problems["bib"].startswith("cannot read bibliography: ")
        assert problems["all"] == ""
        (tmp_path / "none.txt").write_text("s036\n")
        watcher.find()
        assert {each["problem"] for each in watcher.records()["watches"]} == {""}
        for name in ("none", "bib ", "x"):
            with pytest.raises(UsageError, match="the name of a watch") as of_feed:
                watcher.feed(name)
            with pytest.raises(UsageError) as of_removal:
                watcher.remove(name)
            assert str(of_feed.value) == str(of_removal.value)


def test_a_server_keeps_searches_and_finds_what_comes(index, some, tmp_path):
    file = tmp_path / "watches.json"
    body = {"name": "fish", "search": {"paper_ids": ["s036"], "k": 5, "exclude": ["s001"]}, "grade": 0}
    with serving(index, tmp_path / "log", "--watches", str(file)) as server:
        assert server.ask("GET", "/api/index").json()["watches"] is True
        (kept,) = server.ask("POST", "/api/watches", body).json()["watches"]
        expected = {"name": "fish", "search": {"paper_ids": ["s036"]}, "is_bibliography": False, "grade": 0.0}
        assert kept == {**expected, "problem": "", "papers": []}
        assert server.ask("POST", "/api/watches", body).status == 422
        assert server.ask("POST", "/api/watches", {**body, "name": "other", "grade": 9}).status == 422
        unknown = {"name": "x", "search": {"paper_ids": ["nosuch"]}}
        assert server.ask("POST", "/api/watches", unknown).status == 404
        append_papers(index, some[OLD : OLD + 2])

        def shown() -> list[dict]:
            return server.ask("GET", "/api/watches?since=2026-01-01").json()["watches"][0]["papers"]

        wait_until(shown)
        assert {each["paper_id"] for each in shown()} == {each.paper_id for each in some[OLD : OLD + 2]}
        assert server.ask("GET", "/api/watches?since=yesterday").status == 422
        assert server.ask("GET", "/api/watches?since=2999-01-01").json()["watches"][0]["papers"] == []
        feed = server.ask("GET", f"/api/watches/feed?name={quote('fish')}")
        assert feed.headers["content-type"] == "application/atom+xml; charset=utf-8"
        assert len(ElementTree.fromstring(feed.body).findall(f"{{{feeds.ATOM}}}entry")) == 2
        assert server.ask("GET", "/api/watches/feed?name=").body == feed.body
        assert server.ask("GET", "/api/watches/feed?name=none").status == 422
        content = read_watches(file)
        assert not any(each.reported for each in content.watches["fish"].found)  # qbe watch run still does
        with Index(index) as opened:
            text = feeds.report(feeds.items_of(content, opened, None), "markdown", content.feed)
        assert text.startswith("## fish: 2 papers\n")
        assert server.ask("POST", "/api/watches/remove", {"name": "fish"}).json() == {"watches": []}
        assert server.ask("POST", "/api/watches/remove", {"name": "fish"}).status == 422


WRONG = [
    *({"seen": each} for each in ("5", True, -1, 10**6)),
    *({"grade": each} for each in ("1", True)),
    *({"found": each} for each in ([{"paper_id": 1, "grade": 1, "found": ""}], [{"paper_id": "a"}])),
    *({"search": each} for each in ({"paper_ids": "s036"}, {"paper_ids": ["s036"], "like": [1]}, {"k": "2"})),
]


@pytest.mark.parametrize("wrong", [*WRONG, {"feed": "x"}, {"known": [1]}, {"known": "s"}])
def test_a_file_of_watches_with_wrong_types_is_refused(tmp_path, wrong):
    search = {"paper_ids": ["s036"]}
    watch = {"name": "w", "search": search, "grade": 1.0, "cited": "", "seen": 0, "found": []}
    record = {"qbe_watches": 1, "feed": feeds.Watches().feed, "watches": [watch], "known": ["s036"]}
    path = tmp_path / "watches.json"
    path.write_text(json.dumps(record), "utf-8-sig")
    assert read_watches(path).named("w").search == search
    path.write_text(json.dumps({**record, "watches": [watch, watch]}))
    with pytest.raises(FileFormatError):
        read_watches(path)
    (watch if {*wrong} <= {*watch} else record).update(wrong)
    path.write_text(json.dumps(record))
    with pytest.raises(FileFormatError):
        read_watches(path)


def test_a_paper_that_is_gone_is_not_replaced_by_one_of_that_name(index, some, tmp_path):
    bert = replace(some[0], paper_id="bert")
    append_papers(index, [bert, replace(some[1], paper_id="kids", title="Bert and Ernie in the classroom")])
    with Index(index, threads=1) as opened:
        watcher = feeds.Watcher(tmp_path / "watches.json", opened)
        watcher.add("like bert", SearchForm(paper_ids=["bert"]), 0.0)
        delete_papers(index, ["bert"])
        append_papers(index, [replace(some[1], paper_id="kids2")])
        opened.refresh()
        watcher.find()
        (watch,) = watcher.records()["watches"]
        assert (watch["papers"], "found 'bert'" in watch["problem"]) == ([], True)
        assert distinct_papers(opened, ["bert"])[0].paper_id == "kids"  # of a first request
        with pytest.raises(PaperNotFoundError):
            distinct_papers(opened, ["bert"], titles=False)
