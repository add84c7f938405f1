"""Results for people: the reasons of a hit, headings, tables and Markdown."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from qbe.corpus.bibliography import Reference, reference_of, with_formulas
from qbe.corpus.names import ET_AL, split_name
from qbe.index.papers import rows_of
from qbe.index.reader import IndexReader
from qbe.models.encoding import EncodedAspect
from qbe.query import Aspect, Query
from qbe.search.queries import ASKED, Question
from qbe.types import Facet, Hit, Match, Paper, Sentence
from qbe.util.text import plain
from qbe.util.work import Workers


def add_matches(
    reader: IndexReader,
    workers: Workers,
    queries: Sequence[Sequence[EncodedAspect]],
    hits: Sequence[Sequence[Hit]],
) -> list[list[Hit]]:
    """Add to each query's hits the closest sentence to every sentence of every aspect, best pair first."""

    def matched(number: int) -> list[Hit]:
        rows = rows_of(reader.papers, (hit.paper_id for hit in hits[number]))
        if not len(rows):
            return []
        aspects = queries[number]
        positions = [position for each in aspects for position in each.positions]
        places = [place for place, each in enumerate(aspects) for _ in each.positions]
        compared = reader.compare(np.concatenate([each.sentence_vectors for each in aspects]), rows)
        by_paper = np.split(compared.similarities, compared.starts[1:], axis=1)
        found = []
        for hit, of_paper in zip(hits[number], by_paper, strict=True):
            closest, scores = of_paper.argmax(axis=1).tolist(), of_paper.max(axis=1).tolist()
            pairs = map(Match, positions, closest, scores, places)
            found.append(hit._replace(matches=tuple(sorted(pairs, key=lambda pair: -pair.score))))
        return found

    return list(workers.map(matched, range(len(queries))))


class ExplainedSentence(NamedTuple):
    """A sentence of a query, perhaps searched with; ``label`` and ``probability`` are None where given."""

    position: int
    text: str
    facet: str | None
    label: str | None
    probability: float | None
    selected: bool
    guess: bool


def explain_query(aspect: Aspect) -> list[ExplainedSentence]:
    """Describe all sentences of an aspect's paper, in order."""
    selected, guess = aspect.selected_positions(), aspect.is_guess
    return [
        ExplainedSentence(
            position,
            sentence.text,
            sentence.facet.value if sentence.facet else None,
            sentence.probabilities.label if sentence.probabilities else None,
            facet_probability(sentence),
            position in selected,
            guess and position in selected,
        )
        for position, sentence in enumerate(aspect.paper.sentences)
    ]


def facet_probability(sentence: Sentence) -> float | None:
    """Return the probability of a predicted facet (``other`` for none); None for a given one."""
    probabilities = sentence.probabilities
    if probabilities is None:
        return None
    return round(probabilities.of(sentence.facet) if sentence.facet else probabilities.other, 4)


def techniques_in_common(query: Query, papers: Sequence[Paper]) -> list[list[str]]:
    """Return the words of techniques that papers share with the query's liked ones, most telling first."""
    from qbe.models.words import shipped_words

    shared = [shipped_words().in_common(each, papers) for each in query.liked.values()]
    together = (chain.from_iterable(each[place] for each in shared) for place in range(len(papers)))
    return [list(dict.fromkeys(words)) for words in together]


def describe(paper: Paper, position: int, facet: Facet | None) -> str:
    """Describe a label: ``method 0.93``, ``background 0.62, best guess for method 0.31``."""
    if not paper.labelled:
        return "no label"
    sentence = paper.sentences[position]
    probability = facet_probability(sentence)
    if probability is None:
        return f"{sentence.label} given"
    described = f"{sentence.label} {probability:.2f}"
    if facet and sentence.probabilities and paper.facet_positions(facet) == ((position,), True):
        described += f", best guess for {facet} {sentence.probabilities.of(facet):.2f}"
    return described


def shown(query: Query, paper: Paper, hit: Hit) -> tuple[Match, str] | None:
    """Return a hit's best pair, of the facet searched for if any, and its sentence: "method: We cut it."."""
    pairs = [*([hit.driven_by] if hit.driven_by else []), *hit.matches]
    pairs = [pair for pair in pairs if query.aspects[pair.aspect].weight > 0] or pairs
    labels = [label_of(paper, pair.position, query.aspects[pair.aspect].facet) for pair in pairs]
    if not pairs:
        return None
    best = next((place for place, label in enumerate(labels) if not label.startswith("(")), 0)
    label, text = labels[best], paper.sentences[pairs[best].position].text
    return pairs[best], f"{label}{'' if label.startswith('(') else ':'} {text}" if label else text


def label_of(paper: Paper, position: int, facet: Facet | None) -> str:
    """Return the label to show for a facet: a best guess has a question mark, another label parentheses."""
    sentence = paper.sentences[position]
    if facet is None or sentence.facet is facet:
        return sentence.label if sentence.facet else ""
    if paper.facet_positions(facet) == ((position,), True):
        return f"{facet}?"
    return f"(labelled {sentence.label})" if paper.labelled else "(not labelled)"


INDENT, NARROW = 14, 6  # columns before a text with a score on its first line, and with grades below it
AUTHOR = 20  # columns of a first author in a list of papers
MAX_AUTHORS = 3  # that a table names
NAMED, QUOTED = 3, 60  # papers that a heading names at most, and characters of a sentence that it quotes

_TIED = "\N{NO-BREAK SPACE}"
# Frequent words of English, without those that other languages share, and of other European languages.
_ENGLISH, _OTHERS = (
    frozenset(words.split())
    for words in (
        "the of and to for we that with are is by this from as our which these be it have",
        "le la les des et une dans pour est nous sur du au par avec que qui der das und mit von ist ein eine "
        "wir nicht für auf dem den el los las del y en una con para se il di che per della un nel sono os "
        "uma da em com não um het een van voor og det som att och til ikke",
    )
)

_IN_COMMON = {
    "background": ("the same problem", "another problem"),
    "method": ("the same method", "another method"),
    "result": ("the same findings", "other findings"),
}

_SAID = {"paper_ids": "like", "text": "like", "title": "like", "cited": "like those of", "facet": "by"}
_SAID |= {"explore": "", "like": "the same", "unlike": "not the same", "not_paper_ids": "not like"}

Lookup = Callable[[str], Paper]  # a paper of the index by id
Heading = Callable[[Query, Sequence[Hit]], str]


def to_table(
    lookup: Lookup,
    query: Query,
    hits: Sequence[Hit],
    width: int,
    *,
    explain: bool = False,
    title: Heading | None = None,
    graded_by: str = "",
) -> str:
    """Make a table of one query's result. A score beside grades comes after them, lest it be read as one.

    ``title`` makes the heading, ``graded_by`` says whose grades they are, ``explain`` adds what led to them.
    """
    lines = textwrap.wrap(f"{(title or heading)(query, hits)}:", width)
    if explain:
        lines += ["", *_query_lines(query, hits, width)]
    blocks = []
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        year = f" ({paper.year})" if paper.year else ""
        graded = hit.grades is not None
        text = f"{paper.title or hit.paper_id}{year}  [{hit.paper_id}]"
        first, indent = (f"{rank:4d}", NARROW) if graded else (f"{rank:4d} {hit.score:8.4f}", INDENT)
        block = _wrapped(first, text, width, indent)
        block += _wrapped("", credits_of(reference_of(paper)), width, indent, whole_words=True)
        if graded:
            block += _wrapped("", f"{grades_in_words(hit, graded_by)}; score {hit.score:.4f}", width, indent)
        if explain:
            block += _explained_lines(query, paper, hit, width, indent)
        elif best := shown(query, paper, hit):
            block += _wrapped("", best[1], width, indent)
        blocks.append("\n".join(block))
    return "\n".join([*lines, *(["", "\n\n".join(blocks)] if hits else ["No paper was found."])])


def _query_lines(query: Query, hits: Sequence[Hit], width: int) -> list[str]:
    lines = []
    for number, aspect in enumerate(query.aspects):
        if not query.is_single:
            lines += textwrap.wrap(f"Aspect {number}, {aspect.name} of “{plain(aspect.paper.title)}”:", width)
        for sentence in explain_query(aspect):
            label = describe(aspect.paper, sentence.position, aspect.facet)
            mark = "*" if sentence.selected else " "
            lines += _wrapped(f"{mark}{sentence.position}".rjust(4), f"{label}: {sentence.text}", width)
    legend = "Searched with the sentences marked *; ~3 below is the match of sentence 3, with its similarity."
    if any(hit.driven_by for hit in hits):
        legend += " >3 is the pair of sentences that contributed most to the reranker's score."
    if any(hit.plan for hit in hits):
        legend += " 3→0 0.20 is the mass that went from sentence 3 to the paper's sentence 0."
    return [*lines, *textwrap.wrap(legend, width)]


def _explained_lines(query: Query, paper: Paper, hit: Hit, width: int, indent: int) -> list[str]:
    lines = []
    if scores := hit.component_scores:
        words = [f"{name.replace('_', ' ')} {score:.4f}" for name, score in scores.items()]
        below = "first_stage" in scores and "reranker" not in scores
        lines = _wrapped("", ", ".join([*words, "not reranked"] if below else words), width, indent)
    if in_common := techniques_in_common(query, [paper])[0]:
        lines += _wrapped("", f"both: {', '.join(in_common)}", width, indent)
    if hit.plan:  # masses from 0.005 on; no-break spaces before them keep lines from breaking there
        masses = [f"{each.query_position}→{each.position}{_TIED}{each.mass:.2f}" for each in hit.plan]
        plan = "transport " + ", ".join(each for each in masses if not each.endswith("0.00"))
        lines += [line.replace(_TIED, " ") for line in _wrapped("", plan, width, indent)]
    pairs = [(">", hit.driven_by)] if hit.driven_by else []
    for mark, match in (*pairs, *(("~", match) for match in hit.matches)):
        aspect = "" if query.is_single else f"{match.aspect}."
        first = f"{mark}{aspect}{match.query_position}".rjust(4)
        label = describe(paper, match.position, query.aspects[match.aspect].facet)
        text = f"{label}: {paper.sentences[match.position].text}"
        lines += _wrapped(f"{first} {match.score:8.4f} ", text, width)
    return lines


def _wrapped(first: str, text: str, width: int, indent: int = INDENT, whole_words: bool = False) -> list[str]:
    return textwrap.wrap(
        plain(text),
        max(width, 2 * INDENT),
        initial_indent=first.ljust(indent),
        subsequent_indent=" " * indent,
        break_long_words=not whole_words,
        break_on_hyphens=not whole_words,
    )


def columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Lay rows out in two columns, the second one wrapped."""
    first = max((len(left) for left, _ in rows), default=0) + 4
    lines = []
    for left, right in rows:
        begin = f"  {left}".ljust(first)
        lines += textwrap.wrap(
            right, max(width, first + INDENT), initial_indent=begin, subsequent_indent=" " * first
        )
    return lines


def line(paper: Paper, id_width: int) -> str:
    """Describe a paper in one line: id, year, first author's family name (or its file's name) and title."""
    reference = reference_of(paper)
    names = [each.family if (each := split_name(name)) else name for name in reference.names]
    author = plain(names[0]) if names else reference.file
    if len(reference.authors) > 1:
        author = f"{author[: AUTHOR - 7]} {ET_AL}"
    title = plain(reference.title)
    return f"{paper.paper_id:<{id_width}}  {reference.year:4}  {author[:AUTHOR]:<{AUTHOR}}  {title}"


def credits_of(reference: Reference, *, link: bool = True) -> str:
    """A paper's first authors, venue, file and, with ``link``, a link, as far as known."""
    first = [author for author in reference.authors[:MAX_AUTHORS] if author != ET_AL]
    authors = ", ".join(first) + (f" {ET_AL}" if len(first) < len(reference.authors) else "")
    return "; ".join(filter(None, (authors, reference.venue, reference.file, reference.link if link else "")))


def grades_in_words(hit: Hit, graded_by: str = "") -> str:
    """The grades of a hit by facet, after its shape in a mixed list, and whose they are if not qbe's."""
    graded = ", ".join(f"{name} {grade:.1f}" for name, grade in (hit.grades or {}).items()) + " of 3"
    if graded_by:
        graded += f", by {plain(graded_by)}"
    return f"{hit.corner}: {graded}" if hit.corner else graded


def heading(query: Query, hits: Sequence[Hit] = ()) -> str:
    """Describe hits, such as ``Papers like “A title”, for its method``."""
    return f"Papers {_asked(query, hits)}{language_note(query, ' ({})')}"


def _asked(query: Query, hits: Sequence[Hit]) -> str:
    aspects = query.aspects
    if query.is_single:
        return _like(aspects[0])
    corners, liked = Counter(hit.corner for hit in hits if hit.corner), query.liked
    if len(query.papers) == 1 and query.is_by_facets and not corners:
        shared = " and ".join(
            _IN_COMMON[str(each.facet)][each.weight < 0] + _weight_of(each) for each in aspects
        )
        return f"like “{_title(query.papers[0])}”, with {shared}"
    ids = [paper.paper_id for paper in query.papers]
    unnamed = [[each for each in ids if (each in liked) is side][NAMED:] for side in (False, True)]
    parts: dict[tuple[str | bool, str], None] = {}  # of a paper, or of those of a side that are not named
    for aspect in aspects:
        paper_id = aspect.paper.paper_id
        is_liked = paper_id in liked
        if paper_id in (rest := unnamed[is_liked]):
            parts[is_liked, f"and {'' if is_liked else 'not like '}{len(rest)} more"] = None
        elif corners:
            parts[paper_id, f"{'' if is_liked else 'not '}like “{_title(aspect.paper)}”"] = None
        else:
            negation = "not " if aspect.weight < 0 else ""
            parts[paper_id, f"{negation}{_like(aspect)}{_weight_of(aspect)}"] = None
    shapes = ", ".join(f"{count} {corner}" for corner, count in corners.items())
    return f"{'; '.join(part for _, part in parts)}{shapes and f': {shapes}'}"


def _weight_of(aspect: Aspect) -> str:
    return "" if abs(aspect.weight) == 1 else f" (weight {abs(aspect.weight):g})"


def search_in_words(search: Mapping[str, Any]) -> str:
    """Describe the fields of a `qbe.search.request.SearchForm`, such as ``like s036; by method``."""
    words = []
    for name, value in search.items():
        if name != "text" or not search.get("title"):
            value = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            begin = _SAID.get(name, name.replace("_", " "))
            words.append(f"{begin} {textwrap.shorten(plain(value), QUOTED, placeholder=' ...')}".strip())
    return "; ".join(words)


def heading_to_cite(query: Query, _: Sequence[Hit] = ()) -> str:
    return f"Papers for “{_title(query.papers[0])}” to cite{language_note(query, ' ({})')}"


def language_note(query: Query, form: str = "{}") -> str:
    """Say that a query does not look like English, in a form such as " ({})"; '' where it does."""
    foreign = not all(looks_english(f"{paper.title} {paper.abstract}") for paper in query.papers)
    note = "this does not look like English, which the models read: expect little"
    return form.format(note) if foreign else ""


def looks_english(text: str) -> bool:
    """True if most letters are Latin, and frequent words of other languages do not outnumber English ones."""
    letters = list(filter(str.isalpha, text))
    # Latin letters with their accents end at U+024F; formulas have a few Greek ones.
    if not letters or sum(map("\u0250".__gt__, letters)) < len(letters) / 2:
        return False
    words = text.lower().split()
    others = sum(word in _OTHERS for word in words)
    return others < 2 or others <= sum(word in _ENGLISH for word in words)


def _like(aspect: Aspect) -> str:
    asked = aspect.paper.metadata.get(ASKED)
    if asked and aspect.facet is None and aspect.positions is None:
        named = " and ".join(f"the {name} “{asked[name]}”" for name in Question._fields if asked[name])
        return f"for “{plain(asked['text'])}”: searched for {plain(named)}"
    seen = f"for its {aspect.facet}" if aspect.facet else "by its abstract"
    if aspect.positions is not None:
        seen = f"by sentence{'s' * (len(aspect.positions) > 1)} " + ", ".join(map(str, aspect.positions))
    if aspect.is_guess:
        sentence = aspect.paper.sentences[aspect.selected_positions()[0]].text
        begin = sentence if len(sentence) <= QUOTED else f"{sentence[:QUOTED].rpartition(' ')[0]} ..."
        seen += f" (no {aspect.facet} sentence recognized; using “{begin}”; choose others with --sentences)"
    return f"like “{_title(aspect.paper)}”, {seen}"


def _title(paper: Paper) -> str:
    asked = paper.metadata.get(ASKED)
    return plain(asked["text"] if asked else paper.title or paper.sentences[0].text)


_MARKUP = re.compile(r"[\\`*_\[\]<>|&~#$]")
_LIVE = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[:])")
_BEGIN = re.compile(r"(\d*)([-+=.)])")  # of lists and headings
_IN_LINKS = str.maketrans({"(": "%28", ")": "%29", "\\": "%5C", "<": "%3C", ">": "%3E", " ": "%20"})


def to_markdown(
    lookup: Lookup, query: Query, hits: Sequence[Hit], title: Heading = heading, graded_by: str = ""
) -> str:
    """Make Markdown of one query's result: a heading and a numbered list; parameters as of `to_table`."""
    lines = [f"## {escaped(title(query, hits))}", ""]
    for rank, hit in enumerate(hits, start=1):
        paper = lookup(hit.paper_id)
        said = [credits_of(reference_of(paper), link=False), paper.paper_id]
        said += [] if hit.grades is None else [grades_in_words(hit, graded_by)]
        said.append(f"score {hit.score:.4f}")
        number = f"{rank}. "
        lines.append(f"{number}{linked_title(paper)} {escaped('; '.join(filter(None, said)))}")
        if best := shown(query, paper, hit):
            lines.append(f"{' ' * len(number)}> {escaped(best[1])}")
    return "\n".join(lines if hits else [*lines, "No paper was found."])


def linked_title(paper: Paper) -> str:
    """The title of a paper in bold, a link where one is known, with the year."""
    reference = reference_of(paper)
    title = f"**{escaped(reference.title or paper.paper_id)}**"
    if reference.link:
        title = f"[{title}]({reference.link.translate(_IN_LINKS)})"
    return f"{title} ({escaped(str(reference.year))})." if reference.year else f"{title}."


def escaped(text: str) -> str:
    """Escape a text for Markdown, except formulas, in which a blank ends what would be HTML or a link."""
    parts = [
        _LIVE.sub(r"\g<0> ", part) if formula else _MARKUP.sub(r"\\\g<0>", part)
        for part, formula in with_formulas(text)
    ]
    made = "".join(parts)
    begin = _BEGIN.match(made) if _BEGIN.match(text) else None
    return f"{made[: begin.start(2)]}\\{made[begin.start(2) :]}" if begin else made
