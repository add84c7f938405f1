"""Training of the large facet encoder: the upper layers of MPNet, published as their difference."""
