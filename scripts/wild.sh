#!/usr/bin/env bash
# Searches over all arXiv papers of computer science in $QBE_DATA, judged: the first hits by facet and by shape of
# exploration (--protocol as-asked), and pools of graded pairs (crossed, exploration). WILD names files of judged
# hits (wild-test and wild-test-2 are for reports only: data/graded-pairs/README.md counts the looks), POOLS files of
# pools, whose lists are scored by the corners that they come from, too (diversity). INDEX names another index, such
# as one of the papers of the pools alone, RERANK another reranker than grades (grades:joint=50: 10 to 20 minutes
# a file; of pools grades:joint=60).
set -euo pipefail

index="${INDEX:-indexes/arxiv}"
[ -e "$index/CURRENT" ] ||
    qbe index --corpus "$QBE_DATA/arxiv-cs/arxiv-cs.jsonl.xz" --output "$index" --on-error skip --resume

search() {  # the name of the run, the file of topics, options
    rm -rf "runs/.$1.trec.part"  # an interrupted run, perhaps of another index
    qbe search --index "$index" --topics "$2" --output "runs/$1.trec" --overwrite --run-tag "$1" "${@:3}"
}

shapes=(same-problem-other-method same-method-other-problem competitors)

for name in ${WILD-wild-dev}; do
    pairs="data/graded-pairs/$name.tsv"
    judged=("data/graded-pairs/$name"{,-more}.tsv)  # the others have no second file
    [ -e "${judged[1]}" ] || judged=("$pairs")
    mkdir -p "qrels/$name"
    for scope in background method result same-method-other-problem same-problem-other-method competitors; do
        topics="qrels/$name/$scope.tsv"
        awk -F '\t' -v scope=$scope -v OFS='\t' 'NR == 1 { print "query_id", "paper_id" }
            NR > 1 && !seen[$1]++ { print $1 "_" scope, $1 }' "$pairs" > "$topics"
        case $scope in
            background | method | result)
                search "$name.bm25.$scope" "$topics" --facet $scope --first-stage bm25 --rerank none --hits 10
                search "$name.default.$scope" "$topics" --facet $scope --hits 10 --rerank "${RERANK:-grades}"
                ;;
            *) search "$name.default.$scope" "$topics" --like $scope --hits 10 --rerank "${RERANK:-grades}" ;;
        esac
    done
    qbe evaluate --protocol as-asked --qrels "${judged[@]}" --run runs/"$name".{bm25,default}.*.trec \
        --output "runs/$name.json" --overwrite
done

for name in ${POOLS:-dev-2 dev-3}; do
    pairs="data/graded-pairs/$name.tsv"
    qbe datasets graded-pairs --source "$pairs" --output "qrels/$name" --overwrite
    pooled() { search "$name.$1" "qrels/$name/topics.tsv" --pool "qrels/$name/pools.tsv" "${@:2}"; }
    pooled bm25 --first-stage bm25 --rerank none
    pooled fused --rerank none
    pooled projections --rerank projections
    pooled grades --rerank "${RERANK:-grades}"
    qbe evaluate --protocol crossed --qrels "$pairs" --run runs/"$name".{bm25,fused,projections,grades}.trec \
        --baseline "runs/$name.fused.trec" --output "runs/$name.crossed.json" --overwrite
    for wish in "background method" "method background"; do
        read -r liked disliked <<< "$wish"
        topics="qrels/$name/topics.$liked.tsv"
        awk -F '\t' -v facet="$liked" 'NR == 1 || $3 == facet' "qrels/$name/topics.tsv" > "$topics"
        search "$name.explored.$liked-not-$disliked" "$topics" --pool "qrels/$name/pools.tsv" \
            --like "$liked" --unlike "$disliked" --rerank "${RERANK:-grades}"
    done
    qbe evaluate --protocol exploration --qrels "$pairs" --run runs/"$name".explored.*.trec \
        --output "runs/$name.exploration.json" --overwrite
    # Lists of whole abstracts, by rising diversity; mixed of all shapes; and of one shape alone.
    topics="qrels/$name/topics.whole.tsv"
    awk -F '\t' -v OFS='\t' 'NR == 1 || $3 == "background" { print $1, $2 }' "qrels/$name/topics.tsv" > "$topics"
    listed() { search "$name.$1" "$topics" --pool "qrels/$name/pools.tsv" "${@:2}"; }
    for diversity in 0 0.1 0.2 0.3 0.4 0.5 0.6; do
        listed "varied-$diversity" --rerank "grades:diversity=$diversity"
    done
    listed mixed --like "${shapes[@]}"
    for shape in "${shapes[@]}"; do listed "only-$shape" --like "$shape"; done
    lists=(runs/"$name".varied-*.trec "runs/$name.mixed.trec" runs/"$name".only-*.trec)
    qbe evaluate --protocol diversity --qrels "$pairs" --run "${lists[@]}" \
        --baseline "runs/$name.varied-0.trec" --output "runs/$name.diversity.json" --overwrite
    qbe evaluate --protocol diversity --qrels "$pairs" --run runs/"$name".varied-*.trec --plot "runs/$name.diversity.svg" --overwrite
done
