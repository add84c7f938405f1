// Searches that are kept on the server, and the papers that came for them.

import { get, post } from "./api.js";
import { byId, credits, make } from "./dom.js";
import { onPage, readable } from "./plain.js";
import { hasSource, requestOf, stateOf } from "./state.js";

const DAYS = 30; // how far back papers are shown, unless the address says since when
const LONGEST_NAME = 100;

let shown = ""; // since when the papers that are shown came

/** Connects the panel; `getState` gives the state, `onOpen` is called with the changes of it that a kept search
 * is, `onSince` with a date, `onPaper` with the id of a paper to search from. */
export function connect({ getState, onOpen, onSince, onPaper }) {
  const show = (record) => showList(record.watches, { onOpen, onPaper, onRemove: remove });
  const remove = (name) => change("api/watches/remove", { name }, show, () => `“${name}” is no longer watched.`);
  byId("watch-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const { k, exclude, ...search } = requestOf({ ...getState(), view: "similar" });
    const name = byId("watch-name").value.trim();
    change("api/watches", { name, search }, show, () => watched(name, search));
  });
  byId("since").addEventListener("change", () => onSince(byId("since").value));
  byId("watches").addEventListener("refresh", () => load(show));
}

/** Shows the panel for a state; the papers are asked for where another date counts than before. */
export function showWatches(state, papers) {
  const panel = byId("watches");
  panel.hidden = false;
  byId("watch-form").hidden = !hasSource(state) || state.view === "cite";
  const since = state.since || new Date(Date.now() - DAYS * 86_400_000).toISOString().slice(0, 10);
  byId("since").value = since;
  const name = byId("watch-name");
  const title = (papers[0]?.title || state.title || state.text).slice(0, LONGEST_NAME);
  if (title !== name.dataset.title) name.value = name.dataset.title = title;
  if (since === shown) return;
  shown = since;
  panel.dispatchEvent(new Event("refresh"));
}

async function load(show) {
  try {
    show(await get(`api/watches?since=${encodeURIComponent(shown)}`));
  } catch (error) {
    say(error.message);
  }
}

async function change(path, body, show, done) {
  try {
    await post(path, body);
    await load(show);
    say(await done());
  } catch (error) {
    say(error.message);
  }
}

/** Says that a search is watched, with what filters, and warns of filters that no paper passes. */
async function watched(name, search) {
  const filters = filtersOf(search);
  if (!filters) return `“${name}” is watched: papers that come from now on appear here.`;
  const { passing } = await post("api/search", { ...search, k: 1, rerank: false });
  const warning = passing ? "" : " No paper of the collection passes these filters now: check whether any can.";
  return `“${name}” is watched (${filters}): papers that come from now on and pass appear here.${warning}`;
}

/** The filters of a kept search in words, "" without any. */
function filtersOf({ year_from: from, year_to: to, categories, authors, where }) {
  const years = from && to ? `years ${from} to ${to}` : from ? `from ${from} on` : to ? `until ${to}` : "";
  const lists = Object.entries({ categories, authors }).filter(([, values]) => values?.length);
  const named = lists.map(([name, values]) => `${name} ${values.join(" or ")}`);
  return [years, ...named, ...(where ?? []).map((each) => each.replace("=", " "))].filter(Boolean).join(", ");
}

function say(note) {
  byId("watch-note").textContent = note;
}

function showList(watches, { onOpen, onPaper, onRemove }) {
  byId("watch-none").hidden = watches.length > 0;
  byId("watch-feed").hidden = !watches.length;
  byId("watch-list").replaceChildren(...watches.map((watch) => entry(watch, { onOpen, onPaper, onRemove })));
}

function entry(watch, { onOpen, onPaper, onRemove }) {
  const { length } = watch.papers;
  const filters = filtersOf(watch.search);
  const count = length === 1 ? "1 new paper" : `${length || "no"} new papers`;
  const button = (text, onclick) =>
    make("button", { type: "button", class: "link", onclick }, text, make("span", { class: "unseen" }, ` ${watch.name}`));
  return make(
    "li",
    {},
    make(
      "div",
      { class: "between" },
      make("strong", {}, readable("title", watch.name)),
      make(
        "span",
        {},
        watch.is_bibliography ? null : button("Search", () => onOpen(stateOf(watch.search))),
        " ",
        button("Remove", () => onRemove(watch.name)),
      ),
    ),
    filters ? make("p", { class: "hint" }, `Filters: ${filters}`) : null,
    length
      ? make(
          "details",
          {},
          make("summary", {}, count),
          make("ul", {}, watch.papers.map((paper) => found(paper, onPaper))),
        )
      : make("p", { class: "hint" }, count),
    watch.problem ? make("p", { class: "hint" }, `The last search failed: ${onPage(watch.problem)}`) : null,
  );
}

function found(paper, onPaper) {
  const open = () => onPaper(paper.paper_id);
  return make(
    "li",
    {},
    make("button", { type: "button", class: "link", onclick: open }, paper.title || paper.paper_id),
    credits(paper),
    make("p", { class: "hint" }, `grade ${paper.grade.toFixed(1)}, since ${paper.found.slice(0, 10)}`),
  );
}
