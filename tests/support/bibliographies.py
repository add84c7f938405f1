"""Papers with any text, and entries as other programs read them back."""

import logging
from functools import cache

from bibtexparser import parse_string
from bibtexparser.middlewares import names
from hypothesis import strategies as st
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

from qbe.types import Paper, Sentence

_PIECES = [
    *"\\{}$%&#_^~\"'`-@,;:=()[]<>|!?*. aAB1é鱼\u2028\u0301",
    *("$x_1$", "$O(n^{2})$", "$$", "\\alpha", "\\'e", "{\\o}", "BERT", "--", "and"),
    *("@article{", "%%", "ER  - ", "TY  - JOUR"),
]
TEXTS = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)
    | st.lists(st.sampled_from(_PIECES), max_size=20).map("".join)
    | st.lists(st.sampled_from(_PIECES), max_size=12).map(" ".join)
)
"""Any text without control characters, half of it made of what means something in LaTeX, BibTeX or RIS."""

_PARTS = [
    *("Ann", "B.", "Müller", "O'Brien", "Saint-Exupéry", "Íñigo", "al-Ḥasan", "bell", "d\u0323x", "王"),
    *("van", "der", "de", "la", "y", "Jr.", "III", "jr", "ß", "İ", "\u0131", "\u01c5"),
    *("Team", "and", "others", "3rd", "{"),
]
NAMES = st.lists(st.sampled_from(_PARTS), max_size=5).map(" ".join) | TEXTS
"""Names of people with all that they may have, and any text."""

CHIPS = Paper(
    "1905.01234",
    "Fish & Chips: a {BERT for $O(n^2)$ menus",
    (Sentence("Fish_1 costs 5% more."), Sentence("We \\save~it.")),
    metadata={
        "authors": ["Zoë van der Müller", "Íñigo Ångström Jr.", "ATLAS Collaboration", "Plato"],
        "year": 2019,
        "venue": "Journal of Chips & Dips",
        "doi": "10.1145/7_9",
        "categories": ["cs.CL"],
    },
)
"""A paper with all fields, accents, LaTeX, and a brace that is not closed."""


def paper_of(title: str = "", abstract: str = "", **metadata: object) -> Paper:
    """A paper with an abstract of one sentence."""
    return Paper("7", title, (Sentence(abstract),) if abstract else (), metadata=metadata)


@cache
def _decoder() -> LatexNodes2Text:
    """A reader of LaTeX that leaves formulas, dashes and quotation marks, and knows the names of three
    characters that LaTeX's kernel has and pylatexenc lacks, or takes for an accent.
    """
    logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)
    context = get_default_latex_context_db().filter_context(exclude_categories=["nonascii-specials"])
    characters = {"textbraceleft": "{", "textbraceright": "}", "textasciicircum": "^"}
    macros = [MacroTextSpec(name, text) for name, text in characters.items()]
    context.add_context_category("kernel", macros, prepend=True)
    return LatexNodes2Text(latex_context=context, math_mode="verbatim", strict_latex_spaces=True)


def from_latex(text: str) -> str:
    """A text of one line, as it was before it became LaTeX."""
    return _decoder().latex_to_text(text).replace("\n", "")  # it sets displayed formulas apart


def read_bibtex(text: str) -> list[dict[str, object]]:
    """The fields of each entry, with its ``type`` and ``key``; ``author`` is a list of names in the order
    Given Family. Texts are without LaTeX, addresses as they are.
    """
    library = parse_string(text)
    assert not library.failed_blocks
    read = []
    for entry in library.entries:
        fields: dict[str, object] = {"type": entry.entry_type, "key": entry.key}
        for field in entry.fields:
            if field.key == "author":
                fields["author"] = [
                    from_latex(names.parse_single_name_into_parts(name).merge_first_name_first)
                    for name in names.split_multiple_persons_names(field.value)
                ]
            else:
                is_text = field.key in ("title", "journal", "booktitle", "abstract")
                fields[field.key] = from_latex(field.value) if is_text else field.value
        read.append(fields)
    return read
