"""FAISS indexes of each kind, for the sample's 594 sentences as vectors of 16 numbers."""

EXACT, GRAPH, ROUNDED = "SQfp16", "HNSW32,SQfp16", "IVF32,SQ8"
FACTORIES = (EXACT, GRAPH, ROUNDED, "IVF32,PQ4x4fs", "OPQ4,IVF32,PQ4x4fs", "IVF32,PQ2", "Flat")
"""Factory strings; but for the graph, all find all that they are to find where all lists are read."""
