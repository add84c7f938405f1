"""Citation recommendation: which papers of an index a paper should cite."""
