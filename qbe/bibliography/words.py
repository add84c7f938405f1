"""Words that say nothing about a subject."""

import re

FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about across after against all along also among an and are as at be been before between beyond "
        "both but by can did do does each for from had has have how if in into is it its may more most no "
        "not of off on onto or other our over so such than that the their them then there these they this "
        "those through to toward towards under upon us using via was we were what when where which while "
        "who why will with within without you your ",
    )
)
"""English articles, pronouns, prepositions, conjunctions and auxiliary verbs, in lower case."""
