"""The options of the commands of ``qbe train``, as `qbe.cli.options` has those of others."""

TEXT = """
== train
Train the models that qbe ships, and sentence encoders of your own. They are written with a card; an
interrupted call continues from --work.

== train tagger: the facet tagger
Train the facet tagger, on CSAbstruct and unlabelled arXiv abstracts, and on abstracts whose headings label
their sentences. Under an hour on two processors; a quarter with --start.

@output @csabstruct
--headings FILE...  papers as JSON lines, of which structured abstracts are learned from (default: none)
--start DIR  a tagger (a folder, or facet-tagger) that learns on, without teachers
--unlabelled FILE  papers as JSON lines (default: in $QBE_DATA)
@leave-out @seeds @threads

== train encoder: a sentence encoder
Train a sentence encoder, on co-citations with an objective of ASPIRE (Mysore et al., 2022).

--cocitations FILE...!  pairs of co-cited papers, as JSON lines in ASPIRE's format
--dev FILE...  the same, for dev (default: 5 %% of the sets)
@output @leave-out
--objective bi-encoder|ts|ot|ts+ot|abs|att|max|cosent|ict  in the paper: SPECTER-CoCite, TSASPIRE, OTASPIRE,
  TS+OTASPIRE, its ablations ABS, ATT and MAX, the co-citation sentence encoder CoSentBert, and ICTSENTBERT,
  of the inverse cloze task (default: ot)
@encoder
--aligner NAME_OR_FOLDER  an encoder, such as one of the objective cosent, that aligns the sentences of ts,
  ts+ot and abs (default: as the files say)
--similarity cosine|l2  l2: distances of vectors as they are, cosine: of unit length (default: l2)
--epochs N  at most (default: 1)
--steps N  of an epoch, at most, of three batches each (default: all pairs)
--learning-rate RATE  default: 2e-5; 1e-5 for ts+ot
--batch N  pairs a batch, three of which make a step (default: 10)
--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.05)
--margin X  by which the distance of a negative should be larger (default: 1)
--temperature X  tau of transport's masses or of attention (default: 0.5; 1 for att)
--regularization X  lambda of transport (default: 20)
@seed @threads @device

== train large-encoder: the large facet encoder
Train the large facet encoder, all its layers and projections of its vectors, on graded pairs of arXiv
papers (all-mpnet-base-v2: the difference is written). Three minutes on a large GPU, days on two processors.

@output @pairs @base @devs @corpus @leave-out @seeds @threads @device

== train citation: the citation model
Train the citation model, which recommends citations, over the vectors of an index and who cites whom.

@collection @output @seeds @threads

== train technique-words: the words of techniques and problems
Count the words of techniques and problems in the titles of a corpus, which takes minutes.

@output @corpus @devs @seed @threads

== train citation-pairs: a pair reranker for citations
Train a pair reranker for citations, which reads a paper and a candidate for its bibliography together
(Nogueira et al., BIR 2020), on the best candidates of BM25; for --rerank of qbe cite and qbe search.

@collection @output @encoder @passes @seed @threads @device

== train cross-encoder: a cross-encoder of pairs of papers, for a facet, for all, or for citations
Train a cross-encoder of pairs of papers, for a facet, for all, or for citations, of the BERT or RoBERTa
family, on graded pairs of papers of an index (SciFACE, 2026, section 3.9) or, with --collection, as
citation-pairs; Spearman's correlation on dev chooses. For --rerank.

@index @output @citations @pairs @devs @leave-out @encoder @facet @passes @seed @threads @device

== train grades: the grade model
Train the grade model, which turns comparisons of papers into grades, over an index of graded pairs' papers.

@index @output @wild @devs @leave-out @seeds @threads

== train joint-grades: joint grades: a cross-encoder of pairs of papers
Train joint grades: a cross-encoder of pairs of papers, on graded pairs and on pairs of an index that a
larger one grades. A quarter of an hour on a large GPU, weeks on two processors; an hour with --start.

@index @output @start @wild @devs @leave-out @seed @threads @device

== train facet-projections: the facet projections
Train the facet projections, which rerank by stored vectors alone, over an index of graded pairs' papers.

@index @output @pairs @devs @leave-out @seeds @threads

== train admit: allow a tagger to be used with another encoder than it was trained on
Measure a facet tagger on an encoder whose weights are close to those of the encoder it was trained on, and
record in the tagger's card that it can be used with it.

--tagger DIR!  the tagger's folder
--encoder NAME_OR_FOLDER!  the encoder
@csabstruct @threads
== @output
--output DIR!  the folder to write the model to
--work DIR!  the folder of checkpoints and other finished parts
== @seeds
--seeds 0,1,2 (0,1,2)  one model each, and their mean
== @seed
--seeds 0,1,2 (0)  one model each, and their mean
== @threads
--threads N  default: all available processors
== @device
--device cpu|cuda (cpu)  where it trains
== @pairs
--pairs PATH...  graded pairs to train on, files or folders with train*.tsv (default: those of a checkout)
== @wild
--pairs PATH...  graded pairs to train on, files or folders with train*.tsv (default: those of a checkout,
  with its wild-train files)
== @start
--start DIR  joint grades (a folder, or joint-grades) that learn on from the pairs, without a teacher
--steps N  with --start: of eight lists each, of each file equally often (default: 600)
== @devs
--dev FILE...  graded pairs to measure on; the first chooses, the last calibrates chances (default:
  data/facet-judgments/dev.tsv in a checkout of the repository)
== @corpus
--corpus FILE  the papers of the pairs as JSON lines (default: in $QBE_DATA)
== @leave-out
--leave-out FILE  papers as JSON lines that models are evaluated on; papers with such a title are not
  trained on (default: in $QBE_DATA)
== @index
--index DIR!  an index of the pairs' papers
== @collection
--collection DIR!  written by qbe datasets citations, dblp, pubmed or open-research
--index DIR!  an index of its papers.jsonl
== @encoder
--encoder NAME (all-MiniLM-L6-v2)  the model of the BERT family to start from: name in the registry, a
  folder, or a hub name
== @base
--encoder NAME (all-mpnet-base-v2)  the model of the kind BERT or MPNet to start from
== @csabstruct
--csabstruct DIR  its train, dev, test.jsonl (default: in $QBE_DATA)
== @passes
--query-tokens N  tokens of the query to read (default: 256)
--candidate-tokens N  tokens of a candidate to read (default: 256)
--classes natural|balanced|all-cited|random  of citations: BM25's best candidates as they are, as many that
  are not cited as are, also all that is cited, or that and as many papers at random (default: natural)
--candidates N  of citations: BM25's best of each query (default: 10)
--epochs X  passes over the pairs, such as 0.5 (default: 1)
--steps N  of --batch pairs each, in place of --epochs
--learning-rate RATE  the highest (default: 5e-5)
--batch N  pairs a step (default: 16)
--warm-up X  steps in which the rate rises, or below 1 their share of all (default: 0.1)
--evaluations N  on dev, evenly spread; the best is kept (default: 8)
== @citations
--collection DIR  written by qbe datasets citations: learn from it who cites whom, with one output and the
  loss bce, in place of graded pairs
== @facet
--facet background|method|result  a model of one output (default: one of three)
--loss grades|margin|bce  squared error and RankNet of a list's grades, the margin of triplets ordered by
  grade, or cross-entropy of a grade of 1.5 or more (default: grades)
--texts facet|abstract|whole  of the query its facet's sentences or its abstract, with the titles before or,
  whole, between [SEP] (default: facet with --facet, else abstract)
--margin X  of --loss margin (default: 0.5)
--triplets N  of --loss margin, of a query and epoch (default: 10)
"""
