// The list of papers found.

import { byId, credits, make, tag, titleOf } from "./dom.js";
import { gradeBars, pair } from "./why.js";

const CORNERS = {
  "same-problem-other-method": "Same problem, other method",
  "same-method-other-problem": "Same method, other problem",
  competitors: "Competitor: both the same",
};
const MOST_PAIRS = 3;
const MOST_SNIPPET = 220;
const opened = new Set(); // details that are open, so that they stay so in the next order

const byYear = (sign) => (one, other) =>
  sign * (Number(one.year) - Number(other.year)) * (one.year && other.year ? 1 : 0) ||
  Number(!one.year) - Number(!other.year) ||
  one.rank - other.rank;
const ORDERS = { rank: (one, other) => one.rank - other.rank, newest: byYear(-1), oldest: byYear(1) };

/** Shows hits; `query` is the record of the search's query (its papers with sentences); `actions` are called
 * with a hit: toggleBasket, notLike, seen, searchFrom, compare. */
export function showHits(hits, query, state, actions) {
  const facets = new Map(query.flatMap((paper) => paper.sentences.map((each) => [each.text, each])));
  const sorted = [...hits].sort(ORDERS[state.sort]);
  byId("hits").replaceChildren(...sorted.map((hit) => listed(hit, facets, state, actions)));
}

/** Moves the focus to the next hit (`step` 1) or the one before (-1); from elsewhere to the first. */
export function moveFocus(step) {
  const articles = [...byId("hits").querySelectorAll("article")];
  const place = articles.indexOf(document.activeElement?.closest("article"));
  const next = articles[place < 0 ? 0 : Math.min(Math.max(place + step, 0), articles.length - 1)];
  if (next) focusHit(next.dataset.paper);
}

/** Moves the focus to a hit and shows it. */
export function focusHit(paperId) {
  const article = [...byId("hits").querySelectorAll("article")].find((each) => each.dataset.paper === paperId);
  article?.focus();
  article?.scrollIntoView({ block: "nearest" });
}

function listed(hit, facets, state, actions) {
  const pairs = pairsOf(hit, facets);
  const titleId = `hit-${hit.rank}`;
  const button = (name, shown, extra = {}) =>
    make(
      "button",
      { type: "button", "data-focus": `${name} ${hit.paper_id}`, "aria-describedby": titleId, onclick: () => actions[name](hit), ...extra },
      shown,
    );
  const inBasket = state.basket.includes(hit.paper_id);
  return make(
    "li",
    {},
    make(
      "article",
      { class: "hit", tabindex: "-1", "aria-labelledby": titleId, "data-paper": hit.paper_id, "data-focus": `hit ${hit.paper_id}` },
      make("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)),
      make("h4", { id: titleId }, titleOf(hit)),
      credits(hit),
      hit.corner ? make("p", { class: "corner" }, CORNERS[hit.corner]) : null,
      gradeBars(hit.grades),
      hit.in_common?.length ? make("p", { class: "in-common" }, `Both: ${hit.in_common.join(", ")}`) : null,
      pairs.length ? make("p", { class: "snippet" }, tag(pairs[0].facet), " ", shortened(pairs[0].sentence)) : null,
      make(
        "div",
        { class: "actions", role: "group", "aria-label": "What to do with this paper" },
        button("toggleBasket", inBasket ? "In the basket ✓" : "Add to basket", { "aria-pressed": String(inBasket) }),
        button("searchFrom", "Search from here"),
        details(hit, () => [
          ...pairs.map((each) => why(each, facets)),
          hit.abstract ? make("p", { class: "abstract" }, hit.abstract) : "",
          make(
            "div",
            { class: "actions" },
            button("compare", "Compare"),
            state.view === "cite" ? null : button("notLike", "Not like this"),
            button("seen", "Seen", { title: "Leaves it out; “Papers left out” below the list brings it back" }),
          ),
        ]),
      ),
    ),
  );
}

/** The matches that speak for a hit, the best first, each pair of sentences once. */
function pairsOf(hit, facets) {
  const someCount = [...facets.values()].some(({ selected }) => selected);
  const speaks = ({ query_sentence: text }) => !someCount || facets.get(text)?.selected !== false;
  const pairs = new Map();
  for (const match of hit.matches.filter(speaks)) {
    const key = `${match.position} ${match.query_sentence}`;
    if (!pairs.has(key)) pairs.set(key, match);
  }
  return [...pairs.values()].sort((one, other) => other.score - one.score).slice(0, MOST_PAIRS);
}

const why = (match, facets) =>
  pair(
    { text: match.query_sentence, facet: facets.get(match.query_sentence)?.facet ?? null },
    { text: match.sentence, facet: match.facet },
    ["Your query", "This paper"],
  );

/** Why a hit is one, its abstract, and what else can be done with it; made when it is opened. */
function details(hit, content) {
  const key = `details ${hit.paper_id}`;
  const element = make("details", {}, make("summary", { "data-focus": key }, "Why, abstract, more"));
  const fill = () => {
    if (element.open && element.children.length === 1) element.append(...content());
  };
  element.open = opened.has(key);
  fill();
  element.addEventListener("toggle", () => {
    if (element.open) opened.add(key);
    else opened.delete(key);
    fill();
  });
  return element;
}

function shortened(text) {
  if (text.length <= MOST_SNIPPET) return text;
  const start = text.slice(0, MOST_SNIPPET);
  return `${start.slice(0, Math.max(start.lastIndexOf(" "), 1))} …`;
}
