"""The FAISS side: vectors as they are stored, candidates by their neighbours, and exact comparison."""
