"""``qbe datasets``: a test collection as corpus, topics, pools, qrels and folds."""

from __future__ import annotations

import sys

from qbe.cli.common import Parser, made
from qbe.datasets.names import GRADED_PAIRS, NAMES, TAKEN_BY

EPILOG = """\
csfcube is read from --source, else from $QBE_DATA/csfcube; where that is absent it is downloaded from its
public repository (CC BY-NC 4.0; Mysore et al., 2021) to the cache ($QBE_CACHE, else ~/.cache/qbe). sample is
demonstration data, not a benchmark.

citations is for citation recommendation: a paper that cites others is a query, what it cites is relevant. It
has papers.jsonl and, for each split by time (train, dev, test), topics.SPLIT.tsv and SPLIT.qrels. With
--corpus FILE it is made of papers of your own, in a format of qbe index that says what they cite by their
ids. graded-pairs takes a file of graded pairs (tab-separated: query_id, paper_id, background, method and
result), or a folder of such files. arxiv-cs takes arXiv's metadata snapshot (CC0;
kaggle.com/datasets/Cornell-University/arxiv), and writes the papers of computer science to the end of 2019,
as qbe train and graded-pairs read them.

dblp, pubmed and open-research are Citeomatic's collections of who cites whom, in the files that its
get-data.sh fetches. cocitations takes S2ORC's folders metadata and pdf_parses, or a corpus that says what its
papers cite, and writes pairs of papers that are cited together, as qbe train encoder reads them. blended takes
graded pairs and their papers with labelled sentences (qbe tag), and adds candidates that have the background
of one paper, the method of another and the result of a third.

relish, treccovid and scidocs are whole-abstract queries with judged pools, in the layouts in which ASPIRE's
authors and SciDocs' repository release them (docs/evaluation.md says where).

examples:
  qbe datasets csfcube --output data/csfcube
  qbe datasets csfcube --raw --output data/csfcube-raw
  qbe datasets citations --output data/citations
  qbe datasets citations --corpus works.jsonl --split-year 2018 2019 --output data/mine
  qbe datasets graded-pairs --source data/graded-pairs/dev-2.tsv --output data/dev-2
  qbe datasets arxiv-cs --source arxiv-metadata-oai-snapshot.json --output "$QBE_DATA/arxiv-cs"
  qbe datasets relish --source RELISH-Aspire --output data/relish
  qbe datasets dblp --source citeomatic --output data/dblp
  qbe datasets cocitations --source s2orc --output data/cocitations
  qbe datasets blended --source data/graded-pairs/train.tsv --corpus tagged.jsonl --output data/blended
  qbe datasets sample --output data/sample
"""
OF = {  # what --corpus is, by data set
    "citations": "a corpus of your own that says what its papers cite, in place of the release",
    GRADED_PAIRS: "their papers (default: those of arXiv in $QBE_DATA)",
    "blended": "their papers with labelled sentences, as qbe tag writes them; required",
}
TAKEN = {
    "source": "--source PATH  the folder of the release, or its file",
    "corpus": "--corpus FILE  {of_papers}",
    "split_years": "--split-year YEAR...  the last year of train, and of dev; with one YEAR there is no test "
    "(default: 80, 10 and 10 of a hundred papers that cite others, in the order of their years)",
    "leave_out": "--leave-out FILE...  papers of other collections: no paper with such a title (Jaccard "
    "above 0.7) is a query",
    "raw": "--raw  join the sentences of each abstract with spaces, and leave out their labels",
}
PARSER = Parser(
    "qbe datasets", "Write a test collection: corpus, topics, pools, TREC qrels and folds.", epilog=EPILOG
)
_names = PARSER.add_subparsers(dest="name", required=True, metavar=f"{{{','.join(NAMES)}}}")
for _name, _description in NAMES.items():
    _of_papers = OF.get(_name, "")
    _taken = "\n".join(line for option, line in TAKEN.items() if _name in TAKEN_BY[option])
    _command = _names.add_parser(_name, help=_description)
    _command.options(_taken.format(of_papers=_of_papers))
    _command.options("--output DIR!  the folder to write to")
    _command.options("--overwrite  replace files at --output that have another content")


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    from qbe.datasets.registry import DatasetOptions, write_dataset

    years, leave_out = getattr(options, "split_year", None), getattr(options, "leave_out", None)
    chosen = made(DatasetOptions, options, split_years=tuple(years or ()), leave_out=tuple(leave_out or ()))

    def report(line: str) -> None:
        print(line, file=sys.stderr)

    summary = write_dataset(options.name, options.output, chosen, overwrite=options.overwrite, report=report)
    print(*summary, f"written to {options.output}", sep="\n")
