"""The names of the data sets, for the options and for the library; nothing is loaded here."""

from __future__ import annotations

NAMES = {
    "csfcube": "the CSFCube collection (Mysore et al., 2021)",
    "relish": "RELISH (Brown et al., 2019), whole abstracts",
    "treccovid": "TRECCOVID-RF (Voorhees et al., 2020; Mysore et al., 2022), whole abstracts",
    "scidocs": "SciDocs (Cohan et al., 2020), whole abstracts",
    "citations": "who cites whom: papers on visualization (vispubdata), or a corpus of your own",
    "citeomatic": "who cites whom in DBLP, PubMed or Open Research (Bhagavatula et al., 2018)",
    "graded-pairs": "a file of graded pairs of papers, as topics by facet with pools",
    "arxiv-cs": "arXiv's computer science, out of arXiv's metadata snapshot (a corpus without queries)",
    "acl-anthology": "the ACL Anthology, out of its XML files (a corpus without queries)",
    "sample": "the small collection that is part of the package",
}
"""Data sets, each with one line that describes it."""

WITHOUT_SOURCE = ("sample",)
"""Data sets that are part of the package; all others are read from the folder of a release."""

CORPORA = ("arxiv-cs", "acl-anthology")
"""Data sets that are a corpus alone, without topics and judgements."""

OF_CITATIONS = ("citations", "citeomatic")
"""Data sets of citation recommendation."""

CITEOMATIC = ("dblp", "pubmed", "open-research")
"""The collections of citeomatic, which ``corpus`` names."""

GRADED_PAIRS = "graded-pairs"

WITHOUT_RAW = ("scidocs", GRADED_PAIRS, *OF_CITATIONS, *CORPORA)
"""Data sets whose abstracts are no lists of sentences, so that ``raw`` would change nothing."""
