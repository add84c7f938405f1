"""Sentence splitting: phenomena by example, offsets, any text, linear time; papers of plain text."""

# ruff: noqa: RUF001 (the typographic and foreign characters below are meant)

import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.messages import messages_of

from benchmarks.splitting import checked, score
from qbe.corpus.records import paper_from_text
from qbe.corpus.sentences import headed_parts, split_sentences, split_spans
from qbe.errors import CorpusError
from qbe.query import Query
from qbe.types import Paper, Sentence

# "|" stands where one sentence ends and the next begins; the white space around it belongs to the text.
EXAMPLES = {
    "plain": "We propose a model. |It is small. |Is it fast? |It is!",
    "one sentence": "We propose a model",
    "e.g. and i.e.": "Tasks, e.g. Parsing, are hard (i.e. NP-hard, cf. Smith). |We show, e.g., one.",
    "e. g. set apart": "Many tasks, e. g. POS tagging, i. e. Labelling, are solved. |We go on.",
    "et al.": "Smith et al. (2019) and Jones et al. [3] agree. |Lee et al. Proposed nets. |See Wu et al. "
    "|We differ.",
    "etc.": "We test nets, trees, etc. |Nets win. |Trees, etc. are slow (nets, etc.) in practice.",
    "before a number": (
        "See Fig. 3, Eq. (2), Sec. IV, App. B, Table A1 and No. 5. |The answer is no. |We stop."
    ),
    "before a command": r"By Thm. \ref{a} and Eq. $(1)$ it holds. |\textbf{Next} we test.",
    "vs., resp., w.r.t., a.k.a.": "Nets vs. Trees, a.k.a. Forests, w.r.t. Speed, resp. Size. |They win.",
    "titles and places": "Dr. Grey of the U.S. Navy has a Ph.D. Thesis. |It is made in the U.S. |We cite it.",
    "approx.": "It takes approx. 5 s. |That is long.",
    "initials": "As J. R. Smith and D. Jones showed. |It has type C. |We extend B. Jay.",
    "journals": "See [A. Bee, Phys. Rev. E 96 (2017)]. |SIAM J. Comput. 2004 has it.",
    "decimals": "It gains 1.5 points, to 98.7. |Version 2.0.1 is out. |In 4.0. |Taking 7 is .5 too many.",
    "years and units": "This was in 2014. |5G came later. |It runs at 48 Hz. |Users like it.",
    "formula at the end": (
        r"We need $O(n \log n)$. |It follows that $x = 1.$ |So $y$ is \(a. B\). "
        r"|\[x. Y\] holds."
    ),
    "no end inside a formula": (
        "Let $\\forall x. P(x)$ and $[n] = \\{1, 2, ... N\\}$ and $$a. B$$ hold. |Then stop."
    ),
    "prices": "It costs $5. |We show that $10 is too much. |We pay $20. |Then $30 is fine.",
    "one sign too many": "It is n$ steps. |This holds. |We show it is $m$. |The rest follows.",
    "an escaped sign": r"It costs \$5. |We show that \$10 is too much.",
    "commands": r"We use \emph{nets.} |We cite \cite{smith.Jones}. |It is {\em new}. |{\bf Nets} win.",
    "a citation behind": "This is known.[12] |We extend it.[3, 4] |Good.",
    "items": (
        "It (1) is small, (2) is fast; and (iii) works. |(1) It is small. |(ii) we show speed. |3) Done."
    ),
    "enumeration": (
        "Our steps: 1. Parse the text; 2. Tag it. |Both work. |1. First they run. |2. Then they stop."
    ),
    "bullets": "We have two results. |* A bound is shown. |- The bound is tight. |• It is new.",
    "headings": (
        "Background: Nets are big. |Methods: We prune. |Results. They shrink. |Materials and Methods. None."
    ),
    "missing space": (
        "We propose a model.|We show it works. |It is fast (very).|It is small. |It is new .|It is ours."
    ),
    "missing space, plain words": "All errors are discussed.|Cloud computing is next, too.",
    "names with full stops": (
        "See example.com, notes.Txt, Node.JS, Asp.Net, a.Bc, java.lang.String and v1.2.Beta."
    ),
    "address": "Code is at https://example.com/a.b?q=C.d and www.Example.Com/X. |We thank all.",
    "abbreviated with closing bracket": "Others (nets, forests, etc.) |We differ.",
    "ellipsis": (
        "We ask... |It answers. |For i = 1, ..., N it holds. |And so … |The end ... of it. |Values 1, ... N."
    ),
    "quotes": (
        "They call it \"small.\" |We call it 'big.' |Is it ``new?'' |“Yes.” |He asks “why?” in vain. "
        "|«Si.» |No."
    ),
    "a quotation mark apart": "This is “one-shot learning. ” |We improve it.",
    "brackets": "It works (see below). |(It also fails.) |[Both happen.] |We know.",
    "question inside": 'The question "is it new?" remains. |Why? |We ask (why?).',
    "exclamation": "It works! |Yahoo! Answers is a site. |Stop!! |Go?! |Well.",
    "in lower case": (
        "It runs on phones. |iOS is fine. |k-means is too. "
        "|mRNA binds vs. tRNA. but this has no sentence. |and so (approx. half) on."
    ),
    "non-ASCII capitals": "We prune. |Étude is a name. |Über nets. |Ωmega wins. |Ž. Novák agrees.",
    "Chinese": "我们提出模型。|它很快！|真的吗？|「是的。」|好。",
    "Arabic, Hindi": "هل هو سريع؟ |نعم هو سريع. |यह तेज़ है। |हम दिखाते हैं।",
    "marks alone": "... We begin. . . |We go on. ?!",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_phenomenon(name: str) -> None:
    parts = EXAMPLES[name].split("|")
    assert split_sentences("".join(parts)) == [part.strip() for part in parts if part.strip()]


def check_spans(text: str) -> None:
    spans = split_spans(text)
    assert all(start < end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert split_sentences(text) == [text[start:end] for start, end in spans]


LETTERS = " \n\t\0\u2028aZ7.!?…。؟$\\()[]{}\"'”»,;:-*\ud800"
PIECES = st.sampled_from([*LETTERS, "e.g.", "We", "The", "et al.", "\\(", "\\)", "$$", "Fig. ", "a.B"])


@settings(max_examples=60)
@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
@example("")
@example(" \n ")
@example("\0.\0 A")
@example("\ud800. \udfff We")
@example("שלום. |עולם! We".replace("|", ""))
def test_spans_hold_all_but_white_space_whatever_the_text(text: str) -> None:
    check_spans(text)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["We show it.", "It is new!", "Is it so?", "The model is $x$."]), min_size=1))
def test_joined_sentences_are_found_again(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("".join(sentences)) == sentences


def test_offsets_point_into_the_text_as_given() -> None:
    assert split_spans("  We prune.\n\tIt shrinks.  ") == [(2, 11), (13, 24)]
    assert split_spans(" ") == split_spans("") == []


LONG = 80_000


@pytest.mark.parametrize("head, tail", [("x", ""), (".", "x"), ("$", "x"), ("We show (", " It is")])
def test_a_long_run_and_another_end(head: str, tail: str) -> None:
    for run in (".", " ", ")", "'", "(", "[", "$", "-", "\\("):
        text = head + run * (LONG // len(run)) + tail
        begin = time.process_time()
        split_spans(text)
        assert time.process_time() - begin < 0.5


@pytest.mark.slow
def test_hand_checked_boundaries(qbe_data: Path) -> None:
    """Right, wrong and missed, exactly: a change of the rules shows itself here."""
    assert score(split_sentences, checked(qbe_data, "dev", "test")) == (374, 4, 0)


def test_an_abstract_is_split_into_sentences():
    paper = paper_from_text(" On\tfish ", "Fish swim. We count them,\ne.g. cod.")
    sentences = (Sentence("Fish swim."), Sentence("We count them, e.g. cod."))
    assert paper == Paper("sha-18d06b14ce4412fd", "On fish", sentences, offsets=((0, 10), (11, 35)))
    assert paper_from_text("", "One.", paper_id="7").paper_id == "7"


def test_papers_without_an_id_are_told_apart_by_their_texts():
    texts = [
        ("On fish", "Fish swim."),
        ("On fish", "Fish sleep."),
        ("", "Fish swim."),
        (" On  fish", "Fish swim."),
    ]
    papers = [paper_from_text(*each) for each in texts]
    assert len({paper.paper_id for paper in papers}) == 3
    assert len({Query(paper).query_id for paper in papers}) == 3
    assert papers[0].paper_id == papers[3].paper_id


WRONG = [
    ("", "query"),
    (" \n", "query"),
    ("One\0.", "7"),
    *(("One.", paper_id) for paper_id in ("a b", "a\nb", "", 7)),
    *((abstract, None) for abstract in (["One."], b"One.")),
]


def test_other_types_and_invalid_texts_are_refused(told):
    actions = [partial(paper_from_text, "T", abstract, paper_id=paper_id) for abstract, paper_id in WRONG]
    actions.append(partial(paper_from_text, None, "One."))
    told("papers of texts", messages_of(actions, (CorpusError, TypeError)))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("AIM: Cod. METHODS AND MATERIALS: A net. Results: two.", "objective method result"),
        (
            "BACKGROUND\nCod.\nMain Outcomes\nIt.\nMeasurements and main results\n2.",
            "background method result",
        ),
        ("PURPOSE To fish. DESIGN A net. METHODS AND RESULTS Two were caught.", "objective method none"),
        ("Cod. Background and aims. It. Design/methodology/approach. A net.", "none background method"),
        ("Motivation: Cod. Results: We cast a net. Availability: At the sea.", "background none other"),
        ("Background: Fish swim. Conclusions: We count them.", "none"),
    ],
)
def test_headings_say_the_label_of_their_sentences_and_leave_the_text(text, labels):
    assert [part.label or "none" for part in headed_parts(text)] == labels.split()
    paper = paper_from_text("Cod", text)
    assert [text[begin:end] for begin, end in paper.offsets] == [each.text for each in paper.sentences]
    found = [each.probabilities.label if each.probabilities else "none" for each in paper.sentences]
    assert list(dict.fromkeys(found)) == labels.split() and not paper.predicted
