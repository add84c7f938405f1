"""Harvests of arXiv's records from a server that fails, and indexes updated with them."""

import contextlib
import json
import os
import socket
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path

import pytest
from support.builds import interrupt

from benchmarks.common import http_server
from benchmarks.repository import FAULTS, paper, repository
from qbe import BuildSettings, CorpusError, Paper, QbeError, Sentence, UsageError
from qbe.cli.harvest import main
from qbe.feeds.harvest import HarvestSpec, Journal, harvest, update_index
from qbe.feeds.oai import RETRIES, Repository
from qbe.index.build import build
from qbe.index.index import Index
from qbe.util.files import change_lock

pytestmark = pytest.mark.slow


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "papers.jsonl"


def records(path: Path) -> dict[str, dict]:
    """The newest records of a journal."""
    newest, _ = Journal.read(path).newest()
    content = path.read_bytes()
    return {paper_id: json.loads(content[begin:].partition(b"\n")[0]) for paper_id, begin in newest.items()}


def fetched(address: str, output: Path, **spec: object):
    """A harvest without pauses."""
    return harvest(output, HarvestSpec(address, **spec), Repository(address, 0, pause=0))


def counts(done) -> tuple[int, int]:
    return done.records, done.deleted


def test_a_record_of_either_format_becomes_a_paper(output):
    licence = "http://creativecommons.org/licenses/by/4.0/"
    full = paper(2, **{"journal-ref": "J. Fish 7 (2026) 1", "doi": "10.1000/FISH.7", "license": licence})
    with repository([full]) as served:
        fetched(served.address, output)
        fetched(served.address, output.with_name("plain.jsonl"), form="arXiv")
    (raw,), (plain,) = records(output).values(), records(output.with_name("plain.jsonl")).values()
    assert raw == {
        "paper_id": "2611.00002",
        "title": "Counting salmon in river 2",
        "abstract": "Salmon of river 2 are hard to count & follow. We count them at $x<2$ weirs. It works.",
        "metadata": {
            "authors": ["Ann Lee", "Bo van der Post"],
            "categories": ["math.CO"],
            "date": "2026-11-02",
            "venue": "J. Fish 7 (2026) 1",
            "doi": "10.1000/fish.7",
            "url": "https://arxiv.org/abs/2611.00002",
            "license": licence,
            "versions": 2,
        },
    }
    of_plain = {**raw["metadata"], "date": "2026-11-03"}
    assert plain == {**raw, "metadata": {name: each for name, each in of_plain.items() if name != "versions"}}


def test_every_record_comes_once_whatever_the_server_does(output):
    faults = [each for fault in FAULTS for each in (fault, fault, "")]
    with repository([paper(number) for number in range(95)], page=10, faults=faults) as served:
        assert fetched(served.address, output).date == served.today
        assert not served.faults
        assert sorted(records(output)) == sorted(served.papers)
        assert {agent.partition("/")[0] for agent in served.agents} == {"qbe"}
        lists = [asked for _, asked in served.asked if "resumptionToken" not in asked]
        assert all(asked == {"metadataPrefix": "arXivRaw"} for asked in lists)
    assert [path.name for path in output.parent.iterdir()] == ["papers.jsonl"]


def test_what_servers_of_php_add_around_an_answer_is_left_out(output):
    with repository([paper(1), paper(2)]) as served:
        url = f"{served.address}?verb=ListRecords&metadataPrefix=arXivRaw"
        body = b"\n\n" + urllib.request.urlopen(url).read() + b"<br /><b>Notice</b>: Undefined index"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with http_server(Handler) as address:
        assert fetched(address, output).records == 2


def test_requests_are_as_far_apart_as_arxiv_asks_and_pauses_are_kept(output, monkeypatch):
    waits, pause = list[float](), time.sleep
    papers = [paper(number) for number in range(30)]
    with repository(papers, page=10, faults=["503 7", "500", "500"]) as served:

        def sleep(seconds: float) -> None:
            if seconds > 1:
                waits.append(seconds)
            else:
                pause(seconds)

        monkeypatch.setattr("qbe.feeds.oai.time.sleep", sleep)
        harvest(output, HarvestSpec(served.address), Repository(served.address, 0.2, pause=2))
    assert min(later - before for before, later in pairwise(each for each, _ in served.asked)) >= 0.2
    assert waits == [7, 4, 8]  # what the server says; else twice as long each time


def test_a_server_that_never_answers_is_given_up_and_asked_again_another_time(output):
    papers = [paper(number) for number in range(30)]
    with repository(papers, page=10, faults=["", *["503 0"] * RETRIES.attempts]) as served:
        with pytest.raises(CorpusError, match=r"HTTP status 503.*is kept"):
            fetched(served.address, output)
        assert not Journal.read(output).is_complete
        before = len(served.asked)
        assert counts(fetched(served.address, output)) == (30, 0)
        assert len(served.asked) - before == 2  # the first page is not asked for again
    with repository(papers, faults=["503 90000"]) as served, pytest.raises(CorpusError, match="1 attempts"):
        fetched(served.address, output.with_name("other.jsonl"))


def test_an_address_of_no_repository_is_refused_at_once(output, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def no_pause(seconds: float) -> None:
        assert not seconds

    with repository([paper(1)], faults=["page"]) as served:
        monkeypatch.setattr("qbe.feeds.oai.time.sleep", no_pause)
        with pytest.raises(CorpusError, match=r"expected an answer by OAI-PMH, found another, '<!DOCTYPE"):
            harvest(output, HarvestSpec(served.address), Repository(served.address, 0))
        for address in ("http:///x", "http://127.0.0.1:x", "http://a..b", "http://[::1"):
            with pytest.raises(CorpusError, match=r"found none .it is no address .*; check `address`"):
                harvest(output, HarvestSpec(address), Repository(address, 0))
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(CorpusError, match=r"found none .*Name or service not known.*; check `address`"):
            harvest(output, HarvestSpec(served.address), Repository(served.address, 0))
    assert not list(output.parent.iterdir())


def test_a_token_that_is_refused_begins_the_list_anew_a_few_times(output):
    with repository([paper(number) for number in range(30)], page=10) as served:
        answer = served.answer
        refused = {"resumptionToken": "x"}
        served.answer = lambda asked: answer(refused if "resumptionToken" in asked else asked)
        with pytest.raises(CorpusError, match="after 3 new beginnings"):
            fetched(served.address, output)

        def once(asked: dict[str, str]) -> str:
            served.answer = answer
            return answer(refused)

        served.answer = once  # by then the token is known no longer
        fetched(served.address, output)
        assert len(records(output)) == 30


def test_later_harvests_bring_what_changed_since_the_last(output):
    with repository([paper(number) for number in range(20)], page=10) as served:
        assert counts(fetched(served.address, output)) == (20, 0)
        before = output.read_bytes()
        served.put(
            paper(30, datestamp="2026-11-25"),
            paper(3, title="Another title", datestamp="2026-11-25"),
            paper(5, datestamp="2026-11-26", deleted=True),
            paper(77, datestamp="2026-11-26", deleted=True),  # never had
        )
        served.today = "2026-11-27"
        served.asked.clear()
        assert counts(fetched(served.address, output)) == (4, 2)
        assert [asked["from"] for _, asked in served.asked] == ["2026-11-25"]
        assert output.read_bytes().startswith(before)
        newest = records(output)
        assert newest["2611.00003"]["title"] == "Another title"
        assert len(newest) == 20
        assert Journal.read(output).newest()[1] == {"2611.00005", "2611.00077"}
        served.put(paper(5, datestamp="2026-11-27"))  # comes back
        assert counts(fetched(served.address, output)) == (1, 0)
        assert Journal.read(output).newest()[1] == {"2611.00077"}


def test_an_earlier_date_is_harvested_afterwards(output):
    with repository([paper(number) for number in range(28)], page=10) as served:
        for day, came in ((20, 9), (20, 4), (10, 19), (10, 4), (28, 4)):  # a later one is since the last time
            assert counts(fetched(served.address, output, first_date=f"2026-11-{day}")) == (came, 0)
        assert len(records(output)) == 19


def test_several_sets_are_harvested_into_one_file(output):
    with repository([paper(1, categories="cs.IR math.CO"), paper(2), paper(3)], page=1) as served:
        assert counts(fetched(served.address, output, sets=("cs", "math"))) == (4, 0)
        assert [asked.get("set") for _, asked in served.asked if "set" in asked] == ["cs", "math"]
    assert len(records(output)) == 3


def test_an_interrupted_harvest_ends_in_the_same_file(output):
    with repository([paper(number) for number in range(35)], page=10) as served:
        fetched(served.address, output.with_name("whole.jsonl"))
        expected = output.with_name("whole.jsonl").read_bytes()
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                harvest(output, HarvestSpec(served.address), Repository(served.address, 0), interrupt)
            with output.open("ab") as stream:
                stream.write(b'{"paper_id": "a"}\n{"paper_id": "half a li')
        served.asked.clear()
        assert counts(fetched(served.address, output)) == (35, 0)
        assert len(served.asked) == 1
    assert output.read_bytes() == expected


def test_records_that_cannot_be_used_are_left_out_and_counted(output):
    with repository([paper(1), paper(2, abstract="  "), paper(3, title="")]) as served:
        done = fetched(served.address, output)
    assert done.left_out == {"no abstract": 1, "no title": 1}
    assert list(records(output)) == ["2611.00001"]


@pytest.mark.parametrize("line", ["{", "[1]", "{}", '{"paper_id": [1]}', "[" * 100_000, "\0"])
def test_a_damaged_journal_is_told(output, line):
    with repository([paper(1)]) as served:
        fetched(served.address, output)
    output.write_text(output.read_text().replace("\n", f"\n{line}\n", 1))
    with pytest.raises(CorpusError, match="or is damaged"):
        update_index(output, "index")


def test_what_cannot_be_harvested_is_told(output, told, monkeypatch):
    monkeypatch.chdir(output.parent)
    output = Path("papers.jsonl")
    messages = []

    def refused(action) -> None:
        with pytest.raises(QbeError) as raised:
            action()
        messages.append(f"{type(raised.value).__name__} {raised.value}".replace(served.address, "ADDRESS"))

    with repository([paper(number) for number in range(30)], page=10) as served:
        refused(lambda: fetched(served.address, output, sets=("nosuch",)))
        refused(lambda: fetched(served.address, output, first_date="yesterday"))
        refused(lambda: fetched(served.address, output, first_date="2026-02-30"))
        refused(lambda: Repository("oaipmh.arxiv.org", 3))
        refused(lambda: Repository(served.address, -1))
        refused(lambda: update_index(output, "index"))
        served.faults = ["", *["503 0"] * RETRIES.attempts]
        refused(lambda: fetched(served.address, output))
        refused(lambda: update_index(output, "index"))  # not complete
        refused(lambda: fetched(served.address, output, sets=("cs",)))
        refused(lambda: fetched(served.address, output, form="arXiv"))
        monkeypatch.setattr("qbe.util.files._CHANGE_SECONDS", 0.3)
        with change_lock(output):
            refused(lambda: fetched(served.address, output))
        output.write_text("notes\n")
        refused(lambda: fetched(served.address, output))
        refused(lambda: update_index(output, "index"))
        assert output.read_text() == "notes\n"
    told("harvest", messages)


# Indexes


def titles(folder: Path) -> dict[str, str]:
    with Index(folder) as index:
        return {each.paper_id: each.title for each in index}


def own(paper_id: str) -> Paper:
    return Paper(paper_id, f"Own paper {paper_id}", (Sentence("We fish."), Sentence("They swim.")))


def test_an_index_gets_what_changed_and_keeps_the_rest(output, tmp_path, tiny_encoder, capsys):
    folder = tmp_path / "index"
    settings = BuildSettings(bm25=False, encoder=str(tiny_encoder))
    build(folder, [own("x1"), own("2611.00002"), own("2611.00009")], settings)
    with repository([paper(number) for number in range(1, 6)]) as served:
        served.put(paper(9, deleted=True, datestamp="2026-11-25"))
        options = ["--output", str(output), "--address", served.address, "--interval", "0"]
        main([*options, "--index", str(folder)])
        came, line = capsys.readouterr().out.splitlines()
        assert "6 records, 1 of deleted papers, as of 2026-11-25" in came
        assert "4 papers added, 1 replaced, 1 deleted, now 6" in line
        new = {f"2611.0000{number}": f"Counting salmon in river {number}" for number in range(1, 6)}
        assert titles(folder) == {"x1": "Own paper x1"} | new
        with Index(folder) as reader:
            served.put(paper(1, title="Another title", datestamp="2026-11-26"))
            served.put(paper(2, deleted=True, datestamp="2026-11-26"))
            main([*options, "--index", str(folder)])
            assert "0 papers added, 1 replaced, 1 deleted, now 5" in capsys.readouterr().out
            assert len(reader) == 6  # undisturbed
        assert "2611.00002" not in titles(folder)
        main([*options, "--index", str(folder)])
        assert "0 papers added, 0 replaced, 0 deleted" in capsys.readouterr().out
        assert records(output) == {}


def test_an_update_that_fails_is_made_by_the_next(output, tmp_path, tiny_encoder, monkeypatch):
    folder = tmp_path / "index"
    build(folder, [own("x1")], BuildSettings(bm25=False, encoder=str(tiny_encoder)))
    with repository([paper(1)]) as served:
        fetched(served.address, output)
        update_index(output, folder)
        for number in (2, 3):
            served.put(paper(number, datestamp="2026-11-26"))
            fetched(served.address, output)
        with monkeypatch.context() as patched:
            patched.setattr("qbe.feeds.harvest.append_papers", interrupt)
            with pytest.raises(KeyboardInterrupt):
                update_index(output, folder)
        assert len(titles(folder)) == 2
        written = update_index(output, os.path.relpath(folder))
        assert (written.added, written.unchanged, written.papers) == (2, 0, 4)
        with pytest.raises(UsageError, match="harvest into another `output`"):
            update_index(output, tmp_path / "other")


def test_an_index_that_is_not_there_is_built(output, tmp_path):
    with repository([paper(1), paper(2), paper(3, deleted=True)]) as served:
        fetched(served.address, output)
        written = update_index(output, tmp_path / "index")
    assert (written.added, written.papers) == (2, 2)
    assert list(titles(tmp_path / "index")) == ["2611.00001", "2611.00002"]


RECORD = (
    "<record><header><identifier>oai:arXiv.org:2611.{0:05d}</identifier></header><metadata>"
    '<arXivRaw xmlns="http://arxiv.org/OAI/arXivRaw/"><id>2611.{0:05d}</id><title>On fish {0}</title>'
    "<authors>Ann Lee (1) ((1) Institute (Pond))</authors><categories>cs.CL</categories>"
    "<abstract>We count fish{1}.</abstract></arXivRaw></metadata></record>"
)


@contextmanager
def pages(answer):
    """A repository whose pages are ``answer(arguments)``: records, the token with its element, the date."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))
            records, token, day = answer(asked[-1])
            self.send_response(200)
            self.end_headers()
            head = '<?xml version="1.0"?><OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">'
            body = f"{head}<responseDate>{day}T00:00:00Z</responseDate><ListRecords>".encode() + records
            self.wfile.write(body + f"{token}</ListRecords></OAI-PMH>".encode())

    with http_server(Handler) as address:
        yield address, asked


def whole(*numbers: int) -> bytes:
    return "".join(RECORD.format(number, "") for number in numbers).encode()


@pytest.mark.parametrize("day", ["2126-11-20", "soon", "2026-02-30", ""])
def test_a_date_that_is_none_or_to_come_is_not_harvested_from(output, day):
    with pages(lambda _: (whole(1), "", day)) as (address, asked):
        for _ in range(2):
            done = date.fromisoformat(fetched(address, output).date)
            assert abs(done - datetime.now(UTC).date()).days <= 1
    assert date.fromisoformat(asked[1]["from"])


def test_a_list_that_ends_early_is_fetched_again_and_told(output, caplog):
    token = '<resumptionToken completeListSize="50"/>'
    with pages(lambda _: (whole(1, 2), token, "2026-11-20")) as (address, asked):
        with pytest.raises(CorpusError, match="found 2 of the 50 that its list has"):
            fetched(address, output)
        assert fetched(address, output).records == 4  # as much once more: the size is an estimate
    assert [each.get("from") for each in asked] == [None, None]
    assert caplog.text.count("2 of 50 records came") == 2
    assert len(records(output)) == 2


@pytest.mark.parametrize("content", [whole(1), b""])
def test_a_list_without_end_is_given_up(output, content):
    def answer(arguments):
        turn = str(len(asked)) if not content else "B" if arguments.get("resumptionToken") == "A" else "A"
        return content, f"<resumptionToken>{turn}</resumptionToken>", "2026-11-20"

    given_up = pytest.raises(CorpusError, match="expected a new resumption token")
    with pages(answer) as (address, asked), given_up:
        fetched(address, output)
    assert len(asked) < 30


FLAWS = [b"\x0b", b"&#x1F;", b"\xe9\xe8", b" & co", b"&nbsp;&eacute;", b"&bogus;"]


@pytest.mark.parametrize("flaw", [*FLAWS, b"<b>", b"</abstract>", b"<![CDATA[", b"<" * 3, b"</ListRecords>"])
@pytest.mark.parametrize("times", [1, 9])
def test_one_bad_record_blocks_none_behind_it(output, flaw, times):
    bad = RECORD.format(2, "@").encode().replace(b"@", flaw)

    def answer(_):
        second = bad if len(asked) <= times else whole(2)
        return whole(1) + second + b"<br>Warning: a & b" + whole(3), "", "2026-11-20"

    with pages(answer) as (address, asked):
        done = fetched(address, output)
    found = [f"2611.{number:05d}" for number in ((1, 2, 3) if flaw in FLAWS or times == 1 else (1, 3))]
    assert list(records(output)) == found
    assert done.left_out == ({} if len(found) == 3 else {"damaged XML": 1})
    assert records(output)[found[0]]["metadata"]["authors"] == ["Ann Lee"]


def test_an_answer_that_drips_is_given_up(output, monkeypatch):
    monkeypatch.setattr("qbe.feeds.oai.PAGE_SECONDS", 0.3)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(50):
                    self.wfile.write(b" ")
                    time.sleep(0.1)

    monkeypatch.setattr("qbe.feeds.oai.RETRIES", RETRIES._replace(attempts=1))
    with http_server(Handler) as address, pytest.raises(CorpusError, match="no whole answer within"):
        fetched(address, output)
