"""A LaTeX source as a query: title and abstract of it and the files that it inputs, and what it cites."""

import time
import tracemalloc

import pytest

from qbe.cli.cite import main as cite
from qbe.corpus.latex import cited_in, paper_of, source_of
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.search.paper_file import note_on_papers, paper_from_bytes, paper_from_file
from qbe.search.queries import papers_of

DRAFT = r"""
% \title{An older title}
\documentclass{article}
\newcommand{\ours}{\textsc{FishNet}\xspace}
\def\R{\mathbb{R}}
\icmltitlerunning{Fish}
\title[Short]{\vspace{-1em}\bf On Flying \\ {\em Fish}\thanks{Lake {University}, \today}}
\begin{document}
\maketitle
\input{parts/abstract}
\iffalse \begin{abstract}No.\end{abstract} \fi
\section{Introduction}
Fish~\cite{s004} fly \citep[see][p.~2]{s006, unknown}.
\bibliography{refs}
\end{document}
"""
ABSTRACT = r"""\begin{abstract} % the new one
Of Schr\"odinger's ``fish''~\citep{s004}, 5\% fly; \ours{} finds \emph{these}
in \(\R^d\) at $O(n)$.\footnote{Not {all}.} It is
\begin{itemize}\item fast\label{x} \item small\end{itemize}
\end{abstract}"""
PLAIN = "Of Schrödinger's “fish”, 5% fly; FishNet finds these in $\\mathbb{R}^d$ at $O(n)$. It is fast small"
REFS = "@misc{s004}\n@misc{s006}\n@misc{s008}\n@misc{unknown, title={D}}\n"


@pytest.fixture
def draft(tmp_path):
    folder = tmp_path / "draft"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "abstract.tex").write_text(ABSTRACT)
    (folder / "refs.bib").write_text(REFS)
    path = folder / "draft.tex"
    path.write_text(DRAFT)
    return path


def test_title_and_abstract_of_a_draft(draft):
    paper = paper_from_file(str(draft))
    assert (paper.paper_id, paper.title, paper.abstract) == ("query", "On Flying Fish", PLAIN)


@pytest.mark.parametrize(
    ("body", "abstract"),
    [
        (r"\abstract{Fish {swim}.}", "Fish swim."),
        (r"\begin{abstract*}Fish swim.\end{abstract*}", "Fish swim."),
        (r"\section*{Abstract} Fish swim. \section{One} No.", "Fish swim."),
        ("\\begin{abstract}Fish 100\\% % no\n  swim.\\end{abstract}", "Fish 100% swim."),
        (r"\abstract{\begin{equation}x\end{equation} \[y\] Fish\\swim.}", "x $y$ Fish swim."),
    ],
)
def test_abstracts_in_all_forms(body, abstract):
    assert paper_of(source_of(f"\\title{{T}}{body}", None), "a.tex")["abstract"] == abstract


def test_the_introduction_stands_for_an_abstract(tmp_path):
    path = tmp_path / "a.tex"
    text = "Fish swim in lakes. " * 6
    path.write_text(f"\\title{{T}}\\section{{Introduction}}\n\nShort.\n\n{text}\n\nMore.")
    paper = paper_from_file(str(path))
    assert paper.abstract == text.strip()
    assert paper.metadata == {"abstract_from": "the introduction's first paragraph"}
    path.write_text(r"\documentclass{article}\title{T}")
    with pytest.raises(CorpusError, match=r"expected \\begin\{abstract\} or \\abstract"):
        paper_from_file(str(path))


def test_parts_in_files_that_cannot_be_read_are_told(draft):
    folder = draft.parent
    source = r"\title{T}\input{preface}\begin{abstract}Fish swim. \input%s\end{abstract}"
    (folder / "old.tex").write_bytes("Gödel's fish fly.".encode("cp1252"))
    for name, abstract, note in (
        ("{old}", "Fish swim. Gödel's fish fly.", ""),
        ("{new} \\input{new}", "Fish swim.", "files that cannot be read (new)"),
        ("{a}\\input{b}\\input{c}\\input{d}", "Fish swim.", "(a, b, c)"),
    ):
        assert paper_of(source_of(source % name, folder), "a.tex")["abstract"] == abstract
        told = note_on_papers([paper_from_bytes((source % name).encode(), "a.tex", folder)])
        assert (note in told, bool(told)) == (True, bool(note))
    with pytest.raises(RecordError, match=r"cannot be read: preface, new\)"):
        paper_of(source_of((source % "{new}").replace("Fish swim.", ""), folder), "a.tex")
    told = note_on_papers([paper_from_bytes((source % "{old}").encode(), "a.tex")])  # without a folder
    assert "(old)" in told


def test_files_outside_of_the_folder_are_not_read(tmp_path, draft):
    (tmp_path / "secret.tex").write_text(ABSTRACT)
    (draft.parent / "link.tex").symlink_to(tmp_path / "secret.tex")
    for name in ("../secret", str(tmp_path / "secret"), "link", "parts/../../secret.tex", "nosuch", "draft"):
        assert name == "draft" or "Schr" not in source_of(f"\\input{{{name}}}", draft.parent)
    assert source_of(r"a \input draft b", None) == r"a \input draft b"
    text, lacking = r"\includegraphics[width=1cm]{x} \input{#1} \input{glyphtounicode} \input{gone} b", []
    assert source_of(text, None, lacking).endswith(" b")
    assert lacking == ["gone"]


def test_names_that_no_file_can_have_are_left_out(tmp_path):
    (tmp_path / "loop.tex").symlink_to("loop.tex")
    for name in ("a\0b", "loop", "x" * 300):
        assert source_of(f"a \\input{{{name}}} b", tmp_path) == f"a \\input{{{name}}} b"


def test_a_file_that_inputs_itself_ends(tmp_path):
    (tmp_path / "a.tex").write_text(r"x\input{a}\input{a}")
    assert 0 < source_of(r"\input{a}", tmp_path).count("x") <= 200


@pytest.mark.parametrize(
    "begin", [r"\title{", r"\iffalse ", r"\begin{comment}", r"\begin{abstract}", r"\abstract{", r"\def\a{"]
)
def test_what_begins_and_never_ends_takes_no_quadratic_time(begin):
    text = "Fish swim in lakes. " * 6
    source = rf"\section{{Introduction}}{text}" + "\n\n" + begin * 10_000
    began = time.process_time()
    assert paper_of(source_of(source, None), "a.tex")["abstract"] == text.strip()
    assert time.process_time() - began < 5


def test_titles_that_macros_make_long_and_empty_are_tried_a_few_times():
    source = rf"\def\a{{{'{}' * 5_000}}}\abstract{{Fish swim.}}" + r"\title{\a\a\a\a}" * 1000
    began = time.process_time()
    assert paper_of(source, "a.tex")["title"] == ""
    assert time.process_time() - began < 2


def test_macros_that_grow_are_not_substituted():
    source = rf"\def\a{{{'b' * 20_000}}}" + r"\title{T}\abstract{Fish swim." + r"\a" * 10_000 + "}"
    tracemalloc.start()
    try:
        assert paper_of(source, "a.tex")["abstract"].startswith("Fish swim.")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_what_a_draft_cites_is_in_its_bibliographies(draft, index, caplog):
    cited = cited_in(r"\nocite{*}\addbibresource[x]{a.bib}\bibliography{b, c}")
    assert cited == (("a.bib", "b.bib", "c.bib"), {"*"})
    named = papers_of(index.reader, draft)
    assert (named.paper_ids, named.entries, named.missing) == (["s004", "s006"], 3, ("unknown",))
    draft.write_text(r"\cite{s004,lost} \nocite{*} \citestyle{plain} \def\x{\cite{#1}} \bibliography{refs}")
    named = papers_of(index.reader, draft)
    assert (named.paper_ids, named.missing) == (["s004", "s006", "s008"], ("unknown", "lost"))
    assert not caplog.messages
    draft.write_text(r"\input{parts/nosuch}\input{parts/abstract}\cite{s006}\bibliography{refs}")
    assert papers_of(index.reader, draft).paper_ids == ["s004", "s006"]
    told = f"{draft}: what it cites in files that cannot be read is left out (parts/nosuch)"
    assert caplog.messages == [told]
    caplog.clear()
    (draft.parent / "more.bib").write_text("@misc{s004, title={Another}}\n@misc{s010, year={2020}}\n")
    draft.write_text(r"\cite{s004,s010}\bibliography{nosuch,refs,more}")
    assert papers_of(index.reader, draft)[:3] == (["s004", "s010"], 2, ())
    (message,) = (each.partition(";")[0] for each in caplog.messages)
    assert message == f"cannot read {draft.parent}/nosuch.bib: No such file or directory"
    draft.write_text(r"\bibliography{refs}")  # nothing is cited yet
    assert papers_of(index.reader, draft).paper_ids == ["s004", "s006", "s008"]
    draft.write_text(r"\title{T}")
    with pytest.raises(UsageError, match="found neither; give the file of BibTeX itself"):
        papers_of(index.reader, draft)


def test_recommendations_for_a_draft_leave_out_what_it_cites(draft, graded_index, capsys):
    def recommended(*more):
        cite(["--index", str(graded_index), "--paper-file", str(draft), "--hits=128", "--format=trec", *more])
        return {line.split()[2] for line in capsys.readouterr().out.splitlines()} & {"s004", "s006", "s010"}

    assert recommended() == {"s010"}
    (draft.parent / "read.txt").write_text("s010\n")
    assert recommended("--cited", str(draft.parent / "read.txt")) == set()
    (draft.parent / "refs.bib").unlink()
    assert recommended() == {"s004", "s006", "s010"}
