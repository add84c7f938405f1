"""A repository that speaks OAI-PMH as arXiv's does (its formats, sets and tokens), with faults on demand."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from benchmarks.common import http_server

ENVELOPE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\n'
    "<responseDate>{date}T22:30:00Z</responseDate>\n"
    '<request verb="ListRecords">http://oaipmh.arxiv.org/oai</request>\n{content}\n</OAI-PMH>\n'
)
RAW = """<arXivRaw xmlns="http://arxiv.org/OAI/arXivRaw/">
 <id>{id}</id><submitter>{submitter}</submitter>{versions}<title>{title}</title>
 <authors>{authors}</authors><categories>{categories}</categories><comments>12 pages</comments>{rest}
 <abstract>{abstract}</abstract></arXivRaw>"""
PLAIN = """<arXiv xmlns="http://arxiv.org/OAI/arXiv/">
 <id>{id}</id><created>{created}</created><authors>{authors}</authors><title>{title}</title>
 <categories>{categories}</categories>{rest}<abstract>{abstract}</abstract></arXiv>"""

FAULTS = {
    "503 0": "asks to come back at once",
    "503 date": "asks to come back at a date that is past",
    "500": "fails without more",
    "429 0": "says that too many requests came",
    "cut": "sends half of the XML, and says that this is all",
    "short": "ends the connection before all was sent",
    "silent": "ends the connection without an answer",
    "no token": "refuses the resumption token, or the first page with 503",
    "page": "sends a page for people",
}


Record = dict[str, Any]


def paper(number: int, **changes: object) -> Record:
    """An invented paper of arXiv; two versions for even numbers."""
    versions = ["Mon, 2 Nov 2026 10:00:00 GMT", "Tue, 3 Nov 2026 10:00:00 GMT"][: 2 - number % 2]
    return {
        "id": f"2611.{number:05}",
        "title": f"Counting salmon in river {number}",
        "authors": [("Lee", "Ann"), ("van der Post", "Bo")],
        "categories": "cs.IR cs.DL" if number % 2 else "math.CO",
        "versions": versions,
        "abstract": f"  Salmon of river {number} are hard to count & follow.\n"
        f"We count them at $x<{number}$ weirs. It works.\n",
        "datestamp": f"2026-11-{1 + number % 28:02}",
        "deleted": False,
        **changes,
    }


class Repository:
    """The papers by id, the faults of the next requests, and what was asked (with the time)."""

    def __init__(self, papers: Sequence[Record], page: int, faults: Sequence[str]) -> None:
        self.papers = {each["id"]: each for each in papers}
        self.page, self.faults, self.today = page, list(faults), "2026-11-25"
        self.asked: list[tuple[float, dict[str, str]]] = []
        self.agents: set[str] = set()
        self.address = ""

    def put(self, *papers: Record) -> None:
        """Add papers, or other versions of them."""
        self.papers |= {each["id"]: each for each in papers}

    def answer(self, asked: dict[str, str]) -> str:
        """The XML of an answer."""
        skip, token = 0, asked.get("resumptionToken")
        if token is not None:
            asked = {name: values[0] for name, values in parse_qs(unquote(token)).items()}
            if "skip" not in asked:
                return self._error("badResumptionToken", "Token decoding failed or format is invalid.")
            skip = int(asked.pop("skip"))
        form = asked.get("metadataPrefix")
        if form not in ("arXiv", "arXivRaw"):
            return self._error("cannotDisseminateFormat", "Did not recognize requested format")
        first, wanted = asked.get("from", ""), asked.get("set")
        if wanted not in (None, "cs", "math"):
            return self._error("badArgument", "Set has invalid format")
        papers = [
            each
            for each in sorted(self.papers.values(), key=lambda each: (each["datestamp"], each["id"]))
            if each["datestamp"] >= first and (wanted is None or f"{wanted}." in each["categories"])
        ]
        if not papers:
            return self._error("noRecordsMatch", "No records match")
        records = "\n".join(self._record(each, form) for each in papers[skip : skip + self.page])
        more = ""
        if skip + self.page < len(papers):
            more = escape(quote(urlencode({**asked, "skip": skip + self.page})))
            more = f"<resumptionToken expires='2026-11-26T00:00:00Z'>{more}</resumptionToken>"
        elif token is not None:
            more = "<resumptionToken/>"
        return ENVELOPE.format(date=self.today, content=f"<ListRecords>{records}{more}</ListRecords>")

    def _error(self, code: str, message: str) -> str:
        return ENVELOPE.format(date=self.today, content=f'<error code="{code}">{message}</error>')

    def _record(self, each: Record, form: str) -> str:
        status = " status='deleted'" if each["deleted"] else ""
        header = (
            f"<header{status}><identifier>oai:arXiv.org:{each['id']}</identifier>"
            f"<datestamp>{each['datestamp']}</datestamp><setSpec>cs</setSpec></header>"
        )
        if each["deleted"]:
            return f"<record>{header}</record>"
        rest = "".join(
            f"<{name}>{escape(each[name])}</{name}>"
            for name in ("journal-ref", "doi", "license")
            if name in each
        )
        values = {name: escape(str(each[name])) for name in ("id", "title", "categories", "abstract")}
        if form == "arXivRaw":
            versions = "".join(
                f'<version version="v{number}"><date>{date}</date><size>9kb</size></version>'
                for number, date in enumerate(each["versions"], start=1)
            )
            authors = (
                ", ".join(f"{given} {family} (1)" for family, given in each["authors"])
                + " ((1) School of Fish)"
            )
            about = RAW.format(**values, versions=versions, authors=authors, submitter="Ann Lee", rest=rest)
        else:
            authors = "".join(
                f"<author><keyname>{family}</keyname><forenames>{given}</forenames></author>"
                for family, given in each["authors"]
            )
            about = PLAIN.format(**values, created="2026-11-03", authors=authors, rest=rest)
        return f"<record>{header}<metadata>{about}</metadata></record>"


class _Handler(BaseHTTPRequestHandler):
    repository: Repository

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        repository = self.repository
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        repository.asked.append((time.monotonic(), asked))
        repository.agents.add(self.headers["User-Agent"])
        assert asked.pop("verb") == "ListRecords"
        fault = repository.faults.pop(0) if repository.faults else ""
        if fault == "no token" and "resumptionToken" in asked:
            asked["resumptionToken"], fault = "expired", ""
        status, _, after = ("503 0" if fault == "no token" else fault).partition(" ")
        if status.isdecimal():
            self.send_response(int(status))
            if after:
                self.send_header("Retry-After", formatdate(0, usegmt=True) if after == "date" else after)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "silent":
            self.close_connection = True
            return
        body = repository.answer(asked).encode()
        if fault == "page":
            body = b"<!DOCTYPE html><html><body><p>Down for maintenance<br></body></html>"
        sent = body[: len(body) // 2] if fault in ("cut", "short") else body
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body if fault == "short" else sent)))
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = fault == "short"


@contextmanager
def repository(papers: Sequence[Record], page: int = 10, faults: Sequence[str] = ()) -> Iterator[Repository]:
    """A repository of these papers, served on this machine."""
    served = Repository(papers, page, faults)
    with http_server(type("Handler", (_Handler,), {"repository": served})) as address:
        served.address = f"{address}/oai"
        yield served
