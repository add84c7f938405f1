"""Test collections, turned into the files the other commands take: CSFCube and the embedded sample."""
