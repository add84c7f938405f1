"""Moved."""

from qbe.search.explore import open_explore_stage  # noqa: F401
from qbe.search.first_stages import *  # noqa: F403
from qbe.search.grading import no_grades, open_grader, stored_vectors  # noqa: F401
from qbe.search.session import *  # noqa: F403
