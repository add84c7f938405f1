"""How often the note that nothing fits is right: ``python -m benchmarks.fits --index DIR``.

A list is the judged papers of a query in a file, ranked by a facet as a search ranks. One with the
note should have no hit (a grade of 1.5 or more) among its first five, one without it should have two.

With ``--questions``, over the index of ``make questions``, a list is what a search finds for a question of
``data/questions``, and once more without the papers that answer it: half of all lists have no answer.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import qbe
from qbe.query import SIMILAR_FROM
from qbe.runs import read_graded_pairs
from qbe.search.grading import FIRST_HITS, NOTHING_FITS, UNANSWERED, answer, open_grader
from qbe.search.queries import from_topics
from qbe.search.rerankers import JointGrader
from qbe.train.grades import query_of
from qbe.types import Facet

PAIRS = [f"data/graded-pairs/{name}.tsv" for name in ("wild-dev", "wild-dev-2", "small-dev")]
DEPTH = 60  # hits of a question, of which some are taken away
Fit = tuple[float, int]


def of_pairs(index: qbe.Index, files: Sequence[str]) -> Iterator[Fit]:
    """Rank the pairs of files; yield the best grade among the first hits, and how many are right."""
    grader, joint = open_grader(index), JointGrader()
    for query, pairs in (each for file in files for each in read_graded_pairs(Path(file)).items()):
        candidates = [index.paper(pair.paper_id) for pair in pairs]
        stored = grader.grade(query_of(index.reader, query), candidates)[0].grades
        grades = (stored + joint.grade(index.paper(query), candidates)) / 2
        for place in range(len(Facet)):
            first = np.argsort(-grades[:, place], kind="stable")[:FIRST_HITS]
            hits = sum(pairs[row].grades[place] >= SIMILAR_FROM for row in first)
            yield float(grades[first, place].max()), hits


def of_questions(index: qbe.Index, split: str) -> Iterator[Fit]:
    """Search for the questions of a split; yield answers of lists with and without the papers that answer."""
    joint, files = JointGrader(), Path("data/questions").glob(f"{split}*.qrels")
    qrels = [qbe.read_qrels(file) for file in files if file.stem in (split, f"{split}-more")]
    source = from_topics(index, Path(f"data/questions/{split}.tsv"))
    with qbe.SearchSession(index) as session:
        for query_id, query in zip(source.ids, source.load(range(len(source.ids))), strict=True):
            hits = session.search(qbe.SearchRequest(query, DEPTH), rerank=False).hits
            right = {name for each in qrels for name, grade in each.get(query_id, {}).items() if grade >= 2}
            for some in (hits, [hit for hit in hits if hit.paper_id not in right]):
                papers = [index.paper(hit.paper_id) for hit in some[:FIRST_HITS]]
                fit = answer(query.papers[0], some, papers, joint)
                yield fit, sum(hit.paper_id in right for hit in some[:FIRST_HITS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True, help="an index of the papers")
    parser.add_argument("--pairs", nargs="+", default=PAIRS, help="files of judged first hits")
    parser.add_argument("--questions", nargs="+", choices=("dev", "dev-2", "test"), help="not pairs")
    parser.add_argument("--at", type=float, nargs="+", help="bounds below which nothing fits")
    options = parser.parse_args()
    with qbe.open(options.index) as index:
        if options.questions:
            lists = [each for split in options.questions for each in of_questions(index, split)]
        else:
            lists = [*of_pairs(index, options.pairs)]
    print("| at most | lists with the note | of these with a hit | lists without | of these with two |")
    print("|---:|---:|---:|---:|---:|")
    for bound in options.at or [UNANSWERED if options.questions else NOTHING_FITS]:
        marked, others = (
            [hits for best, hits in lists if (best <= bound) is is_marked] for is_marked in (True, False)
        )
        shares = [np.mean(np.array(marked) > 0), np.mean(np.array(others) > 1)]
        print(f"| {bound:.2f} | {len(marked)} | {shares[0]:.2f} | {len(others)} | {shares[1]:.2f} |")


if __name__ == "__main__":
    main()
