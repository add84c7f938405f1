"""The formats of tagged lines: RIS, and those of PubMed, of the Web of Science and of EndNote.

Research Information Systems' "RIS Format Specifications", NLM's "MEDLINE/PubMed Data Element Descriptions",
Clarivate's "Web of Science Core Collection Field Tags" and the manual of refer(1) describe them.
"""

from __future__ import annotations

import re

from qbe.corpus.tagged import Tagged

_BEGIN = r"(?:\xef\xbb\xbf|\s)*"
_OF_RIS = (
    r"A[1-4BDNUV]|BT|C[1-8ANPTY]|D[ABOPS]|E[DPT]|I[DS]|J[12AFO]|KW|L[1-4ABK]|M[1-3]|N[12V]|OP|P[BPY]|R[INP]"
    r"|S[ENPTV]|T[1-3AITY]|U[1-5R]|V[LO]|Y[12]"
)
"""Tags that count with other blanks around them than the specification's."""

RIS = Tagged(
    begin=re.compile(rf"{_BEGIN}(?i:TY)\s*-\s".encode()),
    end=re.compile(rb"\s*(?i:ER)\s*-\s*$|ER  -"),
    inner=re.compile(rb"\s*(?:(TI|T1|AB|N2)|AU|A1)\s*-\s"),
    line=re.compile(
        rf"\s*((?:{_OF_RIS})(?=\s*-(?:\s|$))|ER(?=\s*-\s*$)|(?<!\s)[A-Z][A-Z0-9](?=  -))\s*-(.*)"
    ),
    fields="title TI T1 CT, book BT, abstract AB N2, authors AU, venue JF JO T2 JA, dates PY Y1 DA, "
    "doi DO M3 AN L3 UR, url UR LK, id ID, keywords KW",
    same={"A1": "AU"},
    separate=("KW", "UR"),
)
NBIB = Tagged(
    begin=re.compile(rf"{_BEGIN}PMID\s*-\s".encode()),
    end=re.compile(rb"\s*$"),
    inner=re.compile(rb"(?:(TI|BTI|AB)|F?AU)\s*-\s"),
    line=re.compile(r"([A-Z]{2,4})\s*-(.*)"),
    fields="title TI CTI TT, book BTI, abstract AB OAB, authors FAU AU, venue JT TA, dates DP DEP, id PMID, "
    "doi LID AID, pmc PMC, keywords OT MH",
    same={"CN": "FAU"},
)
WOS = Tagged(
    begin=re.compile(rf"{_BEGIN}PT [A-Z]\s*$".encode()),
    end=re.compile(rb"E[RF]\s*$"),
    inner=re.compile(rb"(?:(TI|AB)|AU|AF) \S"),
    line=re.compile(r"([A-Z][A-Z0-9])( .*|\s*$)"),
    fields="title TI, abstract AB, authors AF AU, venue SO, dates PY EY, doi DI D2, id UT, pmid PM, "
    "keywords DE ID",
    same={"CA": "AF"},
    separate=("AU", "AF"),
)
ENDNOTE = Tagged(
    begin=re.compile(rf"{_BEGIN}%0\s".encode()),
    end=re.compile(rb"(?!)"),  # the next one begins
    inner=re.compile(rb"%(?:([TX])|A) "),
    line=re.compile(r"%(\S)(?=\s|$)(.*)"),
    fields="title T, abstract X, authors A, venue J B, dates D 8, doi R, url U, id F, keywords K",
    separate=("K",),
)
