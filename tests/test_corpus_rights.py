"""Statements of rights before and after abstracts."""

import time

import pytest

from qbe.corpus.markup import clean_abstract

ABSTRACT = "We count fish in lakes. We find many."
OF_EBSCO = (
    "Copyright of Fish Letters is the property of Fish Press and its content may not be copied or emailed to "
    "multiple sites without the copyright holder's express written permission. However, users may print "
    "articles for individual use. This abstract may be abridged. No warranty is given about the accuracy of "
    "the copy. Users should refer to the original published version of the material for the full abstract. "
    "(Copyright applies to all Abstracts.)"
)


@pytest.mark.parametrize(
    "statement",
    [
        "(PsycINFO Database Record (c) 2019 APA, all rights reserved)",
        "(PsycInfo Database Record (c) 2020 APA, all rights reserved).",
        "© 2019 Elsevier Ltd. All rights reserved.",
        "©2019 AACR.",
        "&copy; 2019 IEEE.",
        "(C) 2018 Elsevier B.V. All rights reserved.",
        "(c) 2019 S. Karger AG, Basel.",
        "[(c) 2019 Fish Press]",
        "Copyright 2019 The Authors.",
        "Copyright (c) 2019 IEEE",
        "Copyright © 2019, American Society for Fish.",
        "Copyright © 2019 John Wiley & Sons, Ltd.",
        "Crown Copyright © 2019 Published by Elsevier Ltd. All rights reserved.",
        "© EDP Sciences 2019",
        "© 2019 Springer-Verlag GmbH Germany, part of Springer Nature",
        "© 2019 The Authors. Journal of Fish published by Wiley Periodicals, Inc. on behalf of the Fish S"
        "ociety.",
        "© The Author(s) 2019. Published by Oxford University Press. All rights reserved. For permissions"
        ", please "
        "email: journals.permissions@oup.com.",
        "© 2019 by the authors. Licensee MDPI, Basel, Switzerland.",
        "© Author(s) (or their employer(s)) 2019. Re-use permitted under CC BY-NC. Published by BMJ.",
        "© 2019 The Authors. Published by Elsevier Ltd. This is an open access article under the CC BY li"
        "cense "
        "(http://creativecommons.org/licenses/by/4.0/).",
        "This article is protected by copyright. All rights reserved.",
        "Published by Elsevier B.V.",
        "<CopyrightInformation>Whatever (c) the authors say.</CopyrightInformation>",
        "[ABSTRACT FROM AUTHOR]",
        f"[ABSTRACT FROM AUTHOR] {OF_EBSCO}",
        OF_EBSCO,
    ],
)
def test_a_statement_at_the_end_is_left_out(statement: str) -> None:
    assert clean_abstract(f"{ABSTRACT} {statement}") == ABSTRACT
    assert clean_abstract(statement) == ""


@pytest.mark.parametrize(
    "statement",
    [
        "© 2019 IEEE.",
        "© 2019 IEEE. ",
        "Abstract: © 2019 IEEE. ",
        "© 2019 Elsevier B.V. ",
        "© 2019 Elsevier Ltd. All rights reserved.",
        "© 2019, Springer Nature Switzerland AG. ",
        "© 2019 Foo Co., Ltd. ",
        "© The Author(s) 2019.",
        "Copyright 2019 ACM. ",
        "(c) 2019 IEEE. ",
        "Crown Copyright © 2019. ",
        "©2019 The Authors. Published by Elsevier Ltd. This is an open access article under the CC BY lic"
        "ense "
        "(http://creativecommons.org/licenses/by/4.0/). ",
    ],
)
def test_a_statement_at_the_beginning_is_left_out(statement: str) -> None:
    assert clean_abstract(f"{statement}{ABSTRACT}") == ABSTRACT


@pytest.mark.parametrize(
    "abstract",
    [
        "We study (a) nets, (b) rods and (c) 2019 patients in a lake.",
        "In (c) 2010 and later papers fish swim.",
        "© 2019 IEEE We propose a method.",
        "Copyright law of 1976 was changed.",
        "Copyright 2019 is a year. Fish swim.",
        "We ask who holds copyright. All rights are reserved for fish.",
        "Notices such as all rights reserved.",
        "We use the © sign. We show that it is old.",
        "The sign © 2019 Fish appears on a page of ours, we found.",
        "This article is organised as follows.",
        "Books published by Elsevier are dear.",
    ],
)
def test_what_an_abstract_says_itself_stays(abstract: str) -> None:
    assert clean_abstract(abstract) == abstract


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ('<AbstractText Label="AIM">We count.</AbstractText>', "We count."),
        ("We count &amp;amp;#8220;fish&amp;amp;#8221;.", "We count “fish”."),
        ("&amp;lt;p&amp;gt;We count.&amp;lt;/p&amp;gt;", "We count."),
    ],
)
def test_residues_of_other_formats(text: str, cleaned: str) -> None:
    assert clean_abstract(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "© " + "A " * 500_000,
        "Copyright 2019 " + "Ab, " * 200_000 + "x",
        "(" * 500_000 + "(c) 2019",
        "All rights reserved " * 30_000,
        "Copyright of " * 50_000 + "x",
        "© 2019 " + "published by " * 50_000,
    ],
)
def test_hostile_texts_take_a_moment(text: str) -> None:
    start = time.process_time()
    clean_abstract(text)
    assert time.process_time() - start < 5
