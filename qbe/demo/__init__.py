"""A first search, in the sample that is part of the package."""
