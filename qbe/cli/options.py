"""The options of each command, as its help shows them.

`qbe.cli.parser` says how they are written; ``python -m scripts.cli_page`` makes docs/cli.md of them.
"""

TEXT = """
== index
Build an index from a corpus of papers: Lucene postings, contextual sentence vectors in FAISS, the papers
with their sentences' facets, and a manifest. It appears at --output whole or not at all. With --append,
--update, --sync or --delete update the index at --output in one step: open readers keep what they read, a
second writer is refused, and when anything fails the index is unchanged.

--corpus SOURCE...  files or folders of papers (compressed, too), - for standard input, an address such as
  s3://..., a data set hf:NAME[:CONFIG][:SPLIT], or a Zotero library: zotero, or zotero:FOLDER
--output DIR!  the index to create or to update
@threads
--overwrite  replace what is at --output; with --sync delete as many papers as it takes
--resume  go on with an interrupted build
# what is read of the corpus
--format NAME[:FIELD=COLUMN,...]  of the files, as docs/corpora.md lists them (default: recognized, each
  file by itself); of a table perhaps its columns, as in table:id=key,title=name,abstract=text
--category PATTERN...  keep only papers that have one of these categories, such as 'cs.*'
--on-error stop|skip[:SHARE]  at a record that cannot be used: stop, or skip and list it, and fail where
  more than this share is skipped (default: stop; skip:0.01 for files of more than 256 MB)
--keep-without-abstract  keep papers that have a title alone, which stands for the abstract (default: of
  BibTeX, RIS and other libraries, without --on-error)
--dedupe title|doi|both  merge papers with the title, year and first author, or the DOI, of an earlier one
--limit N  read only the first N papers, to try things out
# changes of an index; without any of these one is built
? --append  add the papers of --corpus that the index lacks, with the index's own settings
? --update  the same, and replace papers that --corpus has with other content under the same ids
? --sync  make the index equal to --corpus: add, replace and delete (--overwrite: more than a tenth, too)
? --delete ID...  delete papers; @FILE: those of the file, one id a line
# what is built
--only bm25|dense  bm25: no vectors; dense: no Lucene postings (needs no Java) (default: both)
--encoder NAME[:int8|:fp16|:fp32]  name in the registry, a folder, or a hub name, and its precision, for
  papers and later for queries (default: facet-encoder; int8, on a GPU fp16)
--device cpu|cuda|auto  what runs encoder and tagger; auto: a usable GPU, else the CPU (default: cpu)
--facets given|predicted  given: labels that the corpus brings stay; predicted: none does (default: given)
--tagger NAME_OR_FOLDER  what predicts facets (default: facet-tagger)
--store positions|docvectors|float16|int8...  positions, docvectors: in Lucene, for other programs; float16,
  int8: how vectors are stored (default: float16 up to 200,000 sentences, int8 above)
--faiss auto|FACTORY  how FAISS finds candidates, such as IVF1024,PQ128x4fs, HNSW32,SQfp16 or SQfp16 (all
  are compared) (default: auto, SQfp16 up to 200,000 sentences, lists of short codes above)

== harvest
Fetch the records of arXiv that are new or changed by OAI-PMH, and with --index add, replace and delete
papers of an index accordingly. One request in three seconds is made, and the server's pauses are kept.

--output FILE!  records that no index has yet, and where to go on
--set NAME...  of arXiv such as cs, physics:hep-th or cs:cs:CL (default: everything)
--from DATE  records that were added or changed since then, such as 2026-11-01 (default: all; later runs
  begin where the last one ended)
--index DIR  an index to update, or to build, with what came
--address ADDRESS (https://oaipmh.arxiv.org/oai)  of a repository with arXiv's formats
--format arXivRaw|arXiv (arXivRaw)  arXiv takes authors apart, but lacks the date of the first version
--interval SECONDS (3)  between two requests (default: 3, as arXiv asks)
--threads N  for --index; default: all processors this process may use

Run the same command again, every day for instance: it fetches what changed since the last time, and goes on
with a harvest that was interrupted. docs/watching.md has the lines for cron and systemd.

== pack
Pack an index into one file, from which qbe pull makes the same index.

INDEX  the folder of the index
FILE  the pack, such as arxiv-cs.tar.zst
@overwrite
--license TEXT  licence of the papers, such as CC0-1.0
--source TEXT  where the papers are from
--without-abstracts  leave out the sentences of abstracts, where their licence forbids to pass them on
--threads N  that compress (default: all processors)

== pull
Pull an index that qbe pack has packed, or bring one up to date that was pulled before.

ADDRESS  https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., or a file
--output DIR  folder of the index (default: in the cache, where --index ADDRESS finds it)
--overwrite  replace an index that was changed here, or was not pulled

== search
Find papers like a paper, for its problem (background), its method or its findings (result), or by sentences
picked by hand, or by its whole abstract.

--index DIR...!  built by qbe index, or an address of qbe pull; several are searched as one
? --topics FILE!  tab-separated with a header: query_id, paper_id (or text and title), facet, aspects
? --paper ID...!  a paper of the index, or several: papers like these
? --cited FILE!  papers like those that a bibliography, a LaTeX source or a list of ids names
? --paper-file FILE!  a paper: PDF, LaTeX, JSON, BibTeX, RIS, CSV, or text after its title; - is stdin
? --text TEXT!  an abstract, as it is, or a question
--title TITLE  the title that goes with --text
--not-paper ID...  papers of the index: rank papers similar to these lower
? --facet problem|method|findings|background|result  what to match (background: the problem, result: the
  findings; default: the topic's own, else the whole abstract)
? --sentences 0,3  positions of the sentences to match, from 0
? --like FACET...  facets to have in common, such as method, method:0.5 or 'background>=2' (a grade); or
  same-problem-other-method, same-method-other-problem or competitors, or a mix of these
--unlike FACET...  with --like: facets not to have in common
--facets given|predicted (given)  labels of the query's sentences: its paper's own, or always predicted
--hits N  hits per query (default: 1000 in a TREC run and JSON, 10 in other formats)
--pool FILE  tab-separated file of query_id, paper_id: candidates for each query
--output FILE  write there (default: standard output)
@overwrite
--resume  continue an interrupted run of --topics to --output
@formats
--explain  show the query's sentences, all matches, and what is behind each rank (table or json)
--run-tag TAG  last column of the TREC run (default: qbe-, the first stage, + and the reranker)
@threads
# filters: papers that may be found
@filters
# stages
--first-stage STAGE  bm25, dense or fused (default), with parameters as in fused:depth=500; help lists them
--rerank STAGE  none, grades, projections, cross-encoder, matching, llm, or a model's folder, as in
  grades:joint=50; help lists them (default: grades:joint=20 where the index's encoder has grades, else
  projections where it has these, else cross-encoder)
--encoder NAME  for queries from outside (default: the one the index was built with)

== list
List the papers of an index, one a line: id, year, first author, title. With words those whose title,
authors or ids have all of them.

[WORD...]  a word, perhaps only begun
@index-dir @paper-formats
# filters: papers that are listed
@filters

== show
Show papers of an index: title, authors, year, venue, tags, links, and the abstract's sentences with facets.

ID...  ids or other names (DOI, arXiv id, ...), or words of the title of one paper
@index-dir @paper-formats

== cite
Recommend papers of an index that a paper, or a draft of one, should cite: candidates by BM25 and by vectors
projected for citation, scored by the citation model; where the index knows who cites whom, by that as well.

--index DIR...!  built by qbe index; several are searched as one
? --paper ID!  a paper of the index
? --paper-file FILE!  a paper as of qbe search; what a LaTeX source cites counts as --cited, too
? --text TEXT!  an abstract, as it is
? --bibtex FILE!  drafts as BibTeX entries with title and abstract
? --topics FILE!  tab-separated: query_id, paper_id
--title TITLE  the title that goes with --text
--hits N  default: 20 in a table, 1000 in a run
@formats
--output FILE  default: standard output
@overwrite
--run-tag TAG  default: qbe-cite
--resume  with --topics: continue an unfinished run
@threads
# papers given, and years
--cited FILE  papers that it cites already, which help to find the rest and are not recommended: a
  bibliography, or a list of ids, DOIs, arXiv ids or addresses, one a line
--exclude FILE  papers not to recommend, as in --cited
--before YEAR_OR_QUERY  only papers of this year or earlier; query: not younger than the paper itself
--no-links  leave out who cites whom among the papers of the index
# model
--depth N  candidates (default: 1000)
--query abstract|title|keyterms (abstract)  words of the BM25 query: title and abstract, the title, or the
  most telling words of both
--model DIR  a citation model of your own, by qbe train citation
--rerank FOLDER  a model of pairs of texts that scores the best again, as in m:depth=50,weight=0.5
--encoder NAME  of an index whose encoder's folder has moved

== evaluate
Evaluate TREC runs against TREC qrels.

--qrels FILE...!  TREC qrels files, which are joined
--run FILE...!  TREC run files; NAME.background.trec, NAME.method.trec and NAME.result.trec are one run,
  NAME
--measures NAME...  these measures alone (default: those of the protocol, or nDCG AP P@20 R@20 RR)
--protocol csfcube|pools|crossed|exploration|as-asked|diversity|citations|reviewers|reviews|headings  how
  runs are scored (default: means over queries, by measures of ir-measures)
--folds FILE  the folds (default: folds.json next to the first qrels file)
--split test|dev  the test folds (default), or fold1_dev
--baseline FILE...  runs that the others are compared with, by significance tests
--published  add published figures (csfcube, pools, citations and reviewers)
--details  print all measures, all published systems, intervals, and all significance tests
--per-query  print the value of each query in place of tables, as trec_eval -q does: measure, query and value
  (of several runs the run's name first), separated by tabs
--output FILE  write the whole report as JSON
@overwrite
--plot FILE  draw the runs' figures, with a --baseline the differences (.svg, .png)
--by-paper  with --plot: draw the first measure of papers that are queries by several facets, a panel a run
--worst N  print the N queries that lose most against the baseline, and the N with the lowest scores
--corpus FILE  papers: titles for --worst

Measures are those of ir-measures (nDCG@10, AP(rel=2), P@20, R@20, RR, ...; https://ir-measur.es) and of the
CSFCube protocol (NDCG%20, R-Precision; CSFCube_nDCG, CSFCube_AP, CSFCube_Rprec, CSFCube_P20, CSFCube_R20).
docs/evaluation.md defines the protocols. crossed, exploration, as-asked and diversity take qrels of several
facets of the same papers, or files of graded pairs (tab-separated: query_id, paper_id, background, method,
result); headings takes labelled papers, as --run those that qbe tag wrote.

== tag
Split abstracts into sentences and label each: background, objective, method, result or other. Papers are
written back with abstract as a list and pred_labels, one for each sentence.

--input FILE!  JSON lines with paper_id, title, abstract (a string, or a list of sentences, which is kept);
  .gz, .xz, .zst are read too; - is standard input
--output FILE!  JSON lines; - is standard output
@overwrite
--facets given|predicted (given)  given: keep the labels of papers that have them; predicted: label all
--probabilities  add pred_probabilities, five numbers for each sentence
--tagger NAME  name in the registry, or a folder (default: facet-tagger)
@threads

== label
Make pairs of papers that are graded from 0 to 3 for background, method and result, by a language model
behind an OpenAI-compatible endpoint; or compare two files of grades.

--output FILE  the pairs, tab-separated, with their grades
@overwrite
? --queries FILE  ids of query papers, one a line; - is standard input (default: all of the index)
? --keywords WORD...  query papers are those whose title or abstract has one of these words or phrases
? --runs RUN...  pairs of the first papers of TREC runs for each query (a pool of them)
? --pairs FILE  pairs to grade: tab-separated, with the columns query_id and paper_id
? --differences FILE FILE  the pairs that two files of grades grade differently, for a third assessor
? --adjudicate FILE FILE FILE  grades of two assessors where they agree, else of the third
# pairs
--index DIR  an index that holds the papers, built by qbe index
--sample N  so many query papers, or pairs, at random
--candidates N (16)  of each query paper
--depth N (13)  papers of each of --runs for a query
--topics FILE  of --runs: the topics whose ids they have (default: ids of query papers)
--random-seed N (0)  of what is drawn
--merge G:G...  grades that count as other ones, as in 3:2 or method:3:2; without a model: of --pairs
# the model; without --model pairs are written without grades
--model NAME  its name at the endpoint
--endpoint URL  such as http://127.0.0.1:8080/v1 (default: $QBE_LLM_ENDPOINT); its key is in $QBE_LLM_KEY
--guideline FILE  what the model is told of facets and grades: a file, or sciface for SciFACE's two facets
  (default: qbe's own)
--answers FILE  where answers are kept (default: --output and .answers.sqlite)
--budget-requests N  requests at most, earlier ones included
--budget-tokens N  tokens at most, earlier ones included
--price IN:OUT  of a million tokens of requests and of answers, for the estimate
--dry-run  print what is left to ask, and ask nothing
--parallel N  requests under way at a time (default: 4)
--response-format json_schema|json_object|none  how the endpoint is asked for JSON (default:
  $QBE_LLM_RESPONSE_FORMAT, else json_schema)
--timeout SECONDS  for an answer (default: 120)
# agreement
--agreement FILE FILE  print how far two files of graded pairs agree, and end
--format table|json (table)  of the agreement

Candidates of 20 papers of an index, to be graded by hand (qbe serve --pairs):
  qbe label --index DIR --sample 20 --output pairs.tsv
The same, graded by a model of a server on this machine; repeated after an interrupt, it asks for the rest:
  qbe label --index DIR --sample 20 --output graded.tsv --endpoint http://127.0.0.1:8080/v1 --model NAME
docs/labelling.md has pools of runs, differences of assessors, and decisions of a third.

== serve
Serve an index: a page to search with, and the same for programs over HTTP.

--index DIR...  the index to serve, or several as one (default: $QBE_INDEX, else the only one under
  indexes/, else the 3,000 papers of the package, which are indexed once)
--open  open the page in a browser
--host HOST (127.0.0.1)  address to listen at (default: 127.0.0.1, this machine only)
--port N (8765)  port to listen at, 0 for any free one
--api-key-file FILE  a file with a key that requests must bring; needed to listen beyond this machine
--allow-host NAME...  names under which a server in front of this one is reached
--allow-origin ORIGIN...  origins of other pages, such as https://example.org, that may ask (default: none)
--root-path PATH  what a server in front of this one puts before all paths, such as /qbe
--log-queries  log what is searched for, pasted texts too
--watches FILE  the searches of qbe watch: the page keeps some too, and shows what is new for them
--pairs FILE  pairs to grade by hand on the page label.html: tab-separated, with query_id and paper_id
--labels DIR  with --pairs: the folder for the grades, a file for each assessor
@rerank
--workers N (1)  processes that answer requests; SIGHUP replaces them without a gap
--threads N  of each worker (default: all processors, divided among the workers)

The page is at the address that is printed; programs find a description of the interface under
/openapi.json. Changes of the index are noticed while it is served. Ctrl-C, or SIGTERM, ends it once
requests under way are answered. docs/serve.md says how to serve others, and what workers share.

== mcp
Give agents tools to search an index with, by the Model Context Protocol (MCP).

--index DIR...!  the index to serve, or several as one
--transport stdio|http (stdio)  how agents reach it
--host HOST (127.0.0.1)  http: address to listen at (default: 127.0.0.1, this machine only)
--port N (8766)  http: port to listen at, 0 for any free one (default: 8766)
--api-key-file FILE  http: a file with a key that requests must bring; needed to listen beyond this machine
@rerank @threads

With stdio an agent's program starts this command itself, and talks with it over standard input and output.
With http it listens at http://HOST:PORT/mcp (streamable HTTP). docs/serve.md shows how agents are told.

== demo
Search real papers that are part of the package, and see what a facet is.

@

Indexes the 3,000 arXiv papers of the package, which takes about a minute, searches papers like one of them
for its method and for its problem, and says what to do next. The index is kept in $QBE_CACHE or
~/.cache/qbe. Nothing but Lucene is downloaded; without it papers are searched by vectors alone.

== doctor
Show what this machine and this installation are, and what they lack.

--index DIR  compare all files of this index with their digests
--json  print one JSON object, for programs

Each line is OK, advice (searching works, something is slower or absent) or MISSING (searching needs it).
Nothing is loaded, started, written or sent. With --index only that index is looked at, and a line names
each file that is DAMAGED. The exit code is 1 if something is missing or damaged.

== completion
Print a script that completes qbe's commands, options and choices.

SHELL=bash|zsh|fish  the shell that is to read the script

bash, in ~/.bashrc:                   eval "$(qbe completion bash)"
zsh, in ~/.zshrc, after compinit:     eval "$(qbe completion zsh)"
fish, in ~/.config/fish/config.fish:  qbe completion fish | source

== watch
Keep searches in a file, and report the papers of an index that are new for them, each once: those that came
into the index after the search was kept.

== watch add: keep a search: by papers, a text, a bibliography or an exploration
@name @index-dir @watches
? --paper ID...!  a paper of the index, or several
? --paper-file FILE!  a paper with title and abstract, as of qbe search; it is kept
? --text TEXT!  an abstract, as it is
? --cited FILE!  papers of the index that a bibliography or a list of ids names; it is read at each run
--title TITLE  the title that goes with --text
--not-paper ID...  papers that what is reported should not be like
? --facet problem|method|findings|background|result  what to have in common
? --like FACET...  facets to have in common, or a named combination, as of qbe search
--unlike FACET...  with --like: facets not to have in common
--grade GRADE  report papers of at least this grade, from 0 (unrelated) to 3 (near identical): in the facet,
  or the highest of all; of an exploration what is liked less what is not (default: 1; 0.5 with --unlike)
@threads
# filters: papers that are reported
@filters

== watch list: list the searches that are kept
@watches

== watch remove: remove one
@name @watches

== watch run: report the papers that came since the last run
@index-dir @watches
--since DATE  report again what was found since then, such as 2026-11-20 (default: what was never reported;
  in a feed everything that is kept)
--output FILE  write there (default: standard output)
@overwrite
--format table|json|markdown|atom  default: by the name of --output (.json, .md, .xml), else a table
@threads

== export
Turn PyTorch weights into the ONNX models that qbe runs.

== export encoder: a sentence encoder of the BERT family
@weights
--graph FILE  the traced model without its weights, as qbe train large-encoder writes it; needs no PyTorch
# encoder format (default: as a sentence-transformers folder declares it, else the first)
--layout title-abstract|title-sep-abstract|sentences  input of a pass: title and abstract, the same with
  [SEP] between them, or single sentences
--pooling mean|cls  of a whole paper, and of single sentences: mean of the tokens, or the first ([CLS])
--similarity cosine|l2  cosine of vectors of unit length, or minus the distance of unscaled vectors
--max-tokens N  limit of a pass (default: as the folder declares, else 0: the model's number of positions)
--adapter DIR  a bottleneck adapter of the adapters library

== export cross-encoder: a reranker: a BERT-family sequence classifier of text pairs
@weights

== cluster
Index, search or serve on a Ray cluster.

== cluster index: build an index on a cluster
@index @address
--shards N  ordinary indexes, OUTPUT/1, OUTPUT/2, ..., that are searched as one (default: one a processor)

== cluster search: search an index that a cluster holds
@search @address @holders

== cluster serve: serve an index that a cluster holds
@serve @address @holders

== datasets
Write a test collection: corpus, topics, pools, TREC qrels and folds.

@

csfcube is read from --source, else from $QBE_DATA/csfcube; where that is absent it is downloaded from its
public repository (CC BY-NC 4.0) to the cache, and so are reviewers, reviews, cisi and headings, which are
looked for in $QBE_DATA/people. mini is part of the package (CC0). citations takes a --corpus in a format of
qbe index that says what its papers cite, graded-pairs a file of graded pairs (query_id, paper_id,
background, method, result), or a folder of such. irds:NAME is any collection of ir_datasets (needs
qbe[irds]). docs/papers.md says where the others come from.
== @source
--source PATH  the folder of the release, or its file
== @corpus-of-citations
--corpus FILE  a corpus of your own that says what its papers cite, in place of the release
== @corpus-of-graded-pairs
--corpus FILE  their papers (default: those of arXiv in $QBE_DATA)
== @corpus-of-blended
--corpus FILE  their papers with labelled sentences, as qbe tag writes them; required
== @split_years
--split-year YEAR...  the last year of train, and of dev; with one YEAR there is no test (default: 80, 10
  and 10 of a hundred papers that cite others, in the order of their years)
== @leave_out
--leave-out FILE...  papers of other collections: no paper with such a title (Jaccard above 0.7) is a query
== @raw
--raw  join the sentences of each abstract with spaces, and leave out their labels
== @dataset
--output DIR!  the folder to write to
--overwrite  replace files at --output that have another content
== @index-dir
--index DIR!  built by qbe index
== @overwrite
--overwrite  replace a file that exists
== @threads
--threads N  default: all processors this process may use
== @formats
--format trec|json|table|csv|markdown|bibtex|ris  default: by --output, a table on a terminal, else trec
== @paper-formats
--format table|json|bibtex|ris (table)  json: one object a line
== @rerank
--rerank NAME[:PARAMETER=VALUE,...]  how hits are reranked, as of qbe search (default: as there)
== @filters
--year YEARS  such as 2015-2019, 2015-, -2019 or 2018; query: not later than the query's own paper
--category NAME...  papers that have one of these categories, such as cs.CL, 'cs.*', or cs for all of cs
--author NAME...  papers by one of these; all words of a name must occur, upper case and accents apart
--where KEY=VALUE...  papers whose metadata has all these values, such as tags=nlp; technique=NAME: papers
  that name the technique in their title or where they say how
== @weights
--model DIR!  folder with config.json, model.safetensors (of an encoder also pytorch_model.bin),
  tokenizer.json (of an encoder also vocab.txt)
--output DIR!  folder to create (replaced when it exists)
--name NAME  name of the model (default: the folder's name)
--source TEXT  where the weights come from, for the metadata (default: the folder)
== @name
NAME  what the search is called
== @watches
--watches FILE (watches.json)  where the searches are kept
== @address
# of the cluster (needs qbe[cluster])
--address ADDRESS!  local (one of this machine's processors), auto, or HOST:PORT of a Ray cluster, whose
  nodes see the files under the same paths
== @holders
--replicas N (1)  processes that hold each index
--deadline SECONDS (60)  wait at most so long for indexes
"""
