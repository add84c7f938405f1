"""The methods of Java classes that a search calls, by their signatures; data alone.

pyjnius asks Java for all methods of a class and of those above it when the class is first used, call by call:
of these sixteen that takes a fifth of a cold search. `qbe.index.jvm` makes them out of this table, and asks Java
when anything else of them is called.
"""

from __future__ import annotations

from collections.abc import Mapping

_LUCENE = "Lorg/apache/lucene/"
_JACKSON = "Lcom/fasterxml/jackson/databind/"

METHODS: Mapping[str, Mapping[str, str]] = {
    "java.nio.file.Path": {},
    "java.nio.file.Paths": {"get": "static (Ljava/lang/String;[Ljava/lang/String;)Ljava/nio/file/Path;"},
    "java.util.logging.LogManager": {
        "getLogManager": "static ()Ljava/util/logging/LogManager;",
        "reset": "()V",
    },
    "org.apache.lucene.store.FSDirectory": {
        "open": f"static (Ljava/nio/file/Path;){_LUCENE}store/FSDirectory;",
    },
    "org.apache.lucene.index.DirectoryReader": {
        "open": f"static ({_LUCENE}store/Directory;){_LUCENE}index/DirectoryReader;",
        "getContext": f"(){_LUCENE}index/IndexReaderContext;",
        "maxDoc": "()I",
        "close": "()V",
    },
    "org.apache.lucene.index.IndexReaderContext": {},
    "org.apache.lucene.index.IndexWriter": {  # of which pyjnius would choose the wrong overloads
        "<init>": f"({_LUCENE}store/Directory;{_LUCENE}index/IndexWriterConfig;)V",
        "addIndexes": f"([{_LUCENE}store/Directory;)J",
        "close": "()V",
        "commit": "()J",
        "deleteDocuments": f"([{_LUCENE}search/Query;)J",
        "forceMerge": "(I)V",
    },
    "org.apache.lucene.index.Term": {"<init>": "(Ljava/lang/String;Ljava/lang/String;)V"},
    "org.apache.lucene.search.TermQuery": {"<init>": f"({_LUCENE}index/Term;)V"},
    "org.apache.lucene.index.MultiReader": {
        "<init>": f"([{_LUCENE}index/IndexReader;Z)V",
        "getContext": f"(){_LUCENE}index/IndexReaderContext;",
        "close": "()V",
    },
    "org.apache.lucene.search.IndexSearcher": {
        "<init>": f"({_LUCENE}index/IndexReaderContext;)V",
        "setMaxClauseCount": "static (I)V",
        "setSimilarity": f"({_LUCENE}search/similarities/Similarity;)V",
        "search": f"({_LUCENE}search/Query;I){_LUCENE}search/TopDocs;",
        "count": f"({_LUCENE}search/Query;)I",
    },
    "org.apache.lucene.search.Query": {},
    "org.apache.lucene.search.TopDocs": {},
    "org.apache.lucene.search.similarities.BM25Similarity": {"<init>": "(FF)V"},
    "io.anserini.analysis.DefaultEnglishAnalyzer": {
        "newDefaultInstance": "static ()Lio/anserini/analysis/DefaultEnglishAnalyzer;",
    },
    "io.anserini.search.query.BagOfWordsQueryGenerator": {
        "<init>": "()V",
        "buildQuery": (
            f"(Ljava/lang/String;{_LUCENE}analysis/Analyzer;Ljava/lang/String;){_LUCENE}search/Query;"
        ),
    },
    "com.fasterxml.jackson.databind.ObjectMapper": {
        "<init>": "()V",
        "writer": f"(){_JACKSON}ObjectWriter;",
        "readerForListOf": f"(Ljava/lang/Class;){_JACKSON}ObjectReader;",
    },
    "com.fasterxml.jackson.databind.ObjectReader": {},
    "com.fasterxml.jackson.databind.ObjectWriter": {
        "writeValueAsString": "(Ljava/lang/Object;)Ljava/lang/String;",
    },
}
"""The methods of each class, and its constructor (``<init>``), in the notation of JNI; some are ``static``.
One whose last parameter is an array of texts takes any number of them.
"""
