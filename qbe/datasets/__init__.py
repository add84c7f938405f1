"""Test collections as the files of the other commands: corpus, topics, pools, qrels, folds.

`qbe.datasets.registry.write_dataset` writes one of them to a folder.
"""

ARXIV_CS, GRADED_PAIRS = "arxiv-cs", "graded-pairs"

NAMES = {
    "csfcube": "the CSFCube collection (Mysore et al., 2021)",
    "relish": "RELISH, whole-abstract queries in biomedicine (Brown et al., 2019)",
    "treccovid": "TRECCOVID-RF, whole-abstract queries on COVID-19 (Voorhees et al., 2020)",
    "scidocs": "SciDocs, whole-abstract queries by citations and views (Cohan et al., 2020)",
    "citations": "who cites whom: papers on visualization (vispubdata), or a corpus of your own",
    "dblp": "who cites whom in DBLP, as Citeomatic splits it (Bhagavatula et al., 2018)",
    "pubmed": "who cites whom in PubMed, as Citeomatic splits it",
    "open-research": "who cites whom in Semantic Scholar's Open Corpus, as Nogueira et al. (2020) use it",
    "cocitations": "papers cited together, out of S2ORC's full texts or what papers cite (ASPIRE)",
    "blended": "graded pairs with papers that mix the facets of others (FaBLE)",
    GRADED_PAIRS: "a file of graded pairs of papers, as topics by facet with pools",
    ARXIV_CS: "arXiv's papers of computer science to the end of 2019, of which the graded pairs are",
    "reviewers": "scores by 58 researchers of papers that they read (Stelmakh et al., 2023)",
    "reviews": "ten systematic reviews: what people screened, kept and included",
    "cisi": "CISI's queries that are whole abstracts, in information science",
    "headings": "abstracts in medicine whose authors set headings, which label their sentences",
    "irds": "any collection of ir_datasets, as in irds:vaswani",
    "beir": "a folder of BEIR: corpus, queries and qrels",
    "mini": "3,000 arXiv papers and 60 judged queries, part of the package (CC0)",
}
"""Data sets, each with one line that describes it."""

TAKEN_BY = {
    "source": tuple(name for name in NAMES if name not in ("mini", "irds")),
    "raw": ("csfcube", "relish", "treccovid"),
    "corpus": ("citations", GRADED_PAIRS, "blended"),
    "split_years": ("citations",),
    "leave_out": ("citations", "dblp", "pubmed", "open-research"),
}
"""The data sets that take each option (`qbe.datasets.registry.DatasetOptions`). ``mini`` is part of the
package, ir_datasets finds its own; ``raw`` changes nothing where abstracts are no lists.
"""
