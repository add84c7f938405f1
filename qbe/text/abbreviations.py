"""Words that decide whether a full stop ends a sentence: abbreviations, headings, ways to begin.

Tokens are written without their last full stop: ``e.g`` stands for "e.g.".
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LEADING = _words(
    """
    e.g eg i.e ie cf c.f vs viz resp w.r.t wrt s.t a.k.a aka approx incl ca dr drs prof mr mrs ms
    """
)
"""First letter in lower case: something follows, so the sentence goes on whatever that is."""

NUMBERED = _words(
    """
    fig figs eq eqs eqn eqns sec secs sect ref refs thm lem prop def cor rem ch chap tab alg algs app no
    nos nr vol vols p pp art ex ver v
    """
)
"""First letter in lower case: goes on before a number, a command or a formula ("Fig. 3", "Eq. $(2)$")."""

OFTEN_INNER = _words(
    """
    al Inc Ltd Co Corp GmbH Dept Univ Inst Jr Sr St Mt Proc Conf Symp Int Intl J Trans Lett Phys Rev
    Math Comput Comp Comb Combin Numer Anal Statist Theor Sci Appl Eng Soc Am Amer Assoc Acad Natl Jan
    Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Ph.D PhD Ed Eds ed eds
    """
)
"""As written: the sentence goes on unless the next word is a common way to begin one."""

EXCLAIMED = frozenset(("Jeopardy", "Yahoo"))
"""Names that end in an exclamation mark."""

HEADINGS = _words(
    """
    abstract aim aims approach background conclusion conclusions context contribution contributions
    design discussion evaluation findings implications importance introduction limitations material
    materials method methodology methods motivation objective objectives originality problem purpose
    rationale result results setting significance summary
    """
)
"""In lower case: the words of a structured abstract's headings, which open the sentence after them."""

BEGINNINGS = _words(
    """
    A Additionally After Also Although An And Another Are As At Based Because Before Besides Both But By
    Can Compared Consequently Contrary Conversely Current Despite Do Does Due During Each Empirical Even
    Existing Experimental Experiments Extensive Finally First Firstly Following For From Further
    Furthermore Given Hence Here How However If In Indeed Initially Inspired Instead Is It Its Lastly
    Let Many Meanwhile More Moreover Most Motivated Nevertheless Next Nonetheless Not Numerical On Once
    One Other Our Over Overall Particularly Previous Prior Rather Recent Recently Results Second
    Secondly Several Similarly Simulation Simulations Since So Some Specifically Subsequently Such
    Thanks That The Their Then There Therefore These They Third This Those Though Three Through Thus To
    Together Traditional Two Under Unfortunately Unlike Unless Until Using We What When Where Whereas
    Whether Which While With Within Without Yet You
    """
)
"""Words that begin sentences of abstracts far more often than they are names.

Mostly from the first words of the sentences of CSAbstruct's training part.
"""
