"""The training of the facet projections."""
