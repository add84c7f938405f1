#!/usr/bin/env bash
# Questions in place of papers, judged (data/questions), over 10,000 papers of $QBE_DATA drawn at random: BM25, dense and
# fused for the plain text, and what a question is searched by. SPLIT is dev or test.
set -euo pipefail
split="${SPLIT:-test}"

if [ ! -e indexes/questions/CURRENT ]; then
    mkdir -p indexes
    xz --decompress --stdout "$QBE_DATA/arxiv-cs/arxiv-cs.jsonl.xz" | python -c '
import random, sys
lines = sys.stdin.buffer.readlines()
chosen = set(random.Random(0).sample(range(len(lines)), 10_000))
sys.stdout.buffer.writelines(line for place, line in enumerate(lines) if place in chosen)' > indexes/questions.jsonl
    qbe index --corpus indexes/questions.jsonl --output indexes/questions --on-error skip --resume
fi

search() {  # the name of the run, the file of topics, options
    rm -rf "runs/.questions.$split.$1.trec.part"  # an interrupted run, perhaps of another index
    qbe search --index indexes/questions --topics "$2" --output "runs/questions.$split.$1.trec" --overwrite --run-tag "$1" \
        --hits 100 "${@:3}"
}

mkdir -p runs qrels
awk -F '\t' -v OFS='\t' 'NR == 1 { print $0, "aspects" } NR > 1 { print $0, "sentences:0" }' \
    "data/questions/$split.tsv" > "qrels/questions.$split.plain.tsv"
for stage in bm25 dense fused; do
    search $stage "qrels/questions.$split.plain.tsv" --first-stage $stage --rerank none
done
search question "data/questions/$split.tsv"
qbe evaluate --qrels "data/questions/$split.qrels" --run runs/questions."$split".{bm25,dense,fused,question}.trec \
    --measures nDCG@10 P@10 RR --baseline "runs/questions.$split.dense.trec" --output "runs/questions.$split.json" --overwrite
