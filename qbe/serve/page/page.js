// The page: what it shows follows from one state, which is the fragment of its address.

import { get, isAborted } from "./api.js";
import * as asking from "./ask.js";
import { exportBasket, remember, showBasket, showLeftOut, showUnwanted } from "./basket.js";
import * as comparing from "./compare.js";
import { byId, debounced } from "./dom.js";
import { focusHit, moveFocus, showHits } from "./hits.js";
import { emphasize, showMap } from "./map.js";
import { onPage } from "./plain.js";
import * as querying from "./query.js";
import { find, findMore } from "./search.js";
import { EMPTY, asksForSomething, canCite, changesSearch, hasSource, labelled, read, requestOf, write } from "./state.js";
import * as watching from "./watches.js";

const FILTERS = ["from", "to", "categories", "authors", "technique"];
const MOST_IN_ALL = 1000; // the last place of a ranking that the server gives

let state = EMPTY;
let papers = []; // of the query, with their sentences
let found = emptyList();
let asked = ""; // the request whose answer is shown or under way
let controller = new AbortController();
let index = {}; // what the server says of its index, once it has answered
let shown = ""; // what `papers` and `found` belong to
let revealing = false; // whether what is found is to be scrolled to, once it is there
let sliding = false; // whether the last change came of a slider

function emptyList() {
  return { hits: [], hasMore: false, query: [], question: null };
}

/** Changes the state, as a step of the history or in place of the last one. */
function go(changes, { replace = false } = {}) {
  sliding = false;
  state = { ...state, ...(changesSearch(changes) && { kept: "" }), ...changes };
  const address = write(state) || location.pathname;
  history[replace ? "replaceState" : "pushState"]({ isOurs: true }, "", address);
  show();
}

function show() {
  const isAsked = hasSource(state);
  const source = JSON.stringify([state.text, state.title, state.papers]);
  if (source !== shown) [shown, papers, found] = [source, papers.filter(isOfQuery), emptyList()];
  if (state.view === "cite" && !canCite(state, index)) state.view = "similar";
  for (const id of ["query", "same", "filters", "results"]) byId(id).hidden = !isAsked;
  for (const id of ["basket", "parts"]) byId(id).hidden = !isAsked && !state.basket.length;
  byId("ask-title").textContent = isAsked ? "New search" : "Search for";
  document.body.classList.toggle("asked", isAsked);
  querying.showSame(state, index, found.question);
  showFilters();
  showLists();
  if (index.watches) watching.showWatches(state, papers);
  search();
}

/** Shows everything that is made of hits, and keeps the focus where it was. */
function showLists() {
  const focused = document.activeElement?.dataset?.focus;
  querying.showSummary(state, found.question);
  querying.showPapers(papers, state, found.question, { onPick: pick, onLabel: relabel, onDrop: drop });
  showUnwanted(state, (id) => go({ not: without(state.not, id) }));
  showHits(found.hits, found.query, state, actions);
  showMap(found.hits, choose);
  showBasket(state, index, (id) => go({ basket: without(state.basket, id) }, { replace: true }));
  showLeftOut(state, (id) => go({ not: without(state.not, id), seen: without(state.seen, id) }));
  byId("more").hidden = !found.hasMore || found.hits.length >= MOST_IN_ALL;
  byId("sort").value = state.sort;
  for (const button of byId("views").children) {
    button.setAttribute("aria-pressed", String(button.dataset.view === state.view));
    button.disabled = button.dataset.view === "cite" && !canCite(state, index);
  }
  if (focused && !document.activeElement?.dataset?.focus) {
    [...document.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focused)?.focus({ preventScroll: true });
  }
}

const isOfQuery = (paper) => state.papers.length > 1 && state.papers.includes(paper.paper_id);
const without = (ids, id) => ids.filter((each) => each !== id);
const withOne = (ids, id) => [...without(ids, id), id];

const actions = {
  toggleBasket: ({ paper_id: id }) =>
    go({ basket: state.basket.includes(id) ? without(state.basket, id) : withOne(state.basket, id) }, { replace: true }),
  searchFrom: ({ paper_id: id }) => startFrom([id]),
  compare: (hit) => comparing.compare(state, hit),
  notLike: ({ paper_id: id }) => leaveOut(id, { not: withOne(state.not, id) }),
  seen: ({ paper_id: id }) => leaveOut(id, { seen: withOne(state.seen, id) }),
};

/** Takes a hit out of the list at once; the focus goes to the next one. */
function leaveOut(id, changes) {
  const articles = [...document.querySelectorAll("#hits article")].map((each) => each.dataset.paper);
  const next = articles[articles.indexOf(id) + 1] ?? articles[articles.indexOf(id) - 1];
  found = { ...found, hits: found.hits.filter((hit) => hit.paper_id !== id) };
  go(changes);
  if (next) focusHit(next);
}

function startFrom(ids) {
  go({ text: "", title: "", papers: ids, sentences: [], labels: "", not: state.not.filter((id) => !ids.includes(id)) });
  reveal();
}

function startWith({ text, title }) {
  go({ text, title, papers: [], sentences: [], labels: "" });
  reveal();
}

/** Shows a search that was kept. */
function openSearch(changes) {
  go({ ...changes, view: "similar", seen: [] });
  reveal();
}

function pick(sentences) {
  go({ sentences, ...(sentences.length && { problem: 0, method: 0, result: false, mix: false }) });
}

function relabel(position, facet) {
  go({ labels: labelled(`${state.labels},${position}:${facet}`) });
}

function drop(id) {
  go({ papers: without(state.papers, id), labels: "" });
}

function choose(id) {
  emphasize(id);
  focusHit(id);
}

/** Closes the form and goes to what is found. */
function reveal() {
  byId("ask").open = false;
  byId("results-title").focus({ preventScroll: true });
  revealing = true;
}

const slide = debounced((changes) => {
  const isMore = sliding;
  go(changes, { replace: isMore });
  sliding = true;
}, 150);

function changeSame(same, isSlider) {
  if (!isSlider) go({ ...same, sentences: [] });
  else {
    querying.showSame({ ...state, ...same, sentences: [] }, index, found.question);
    slide({ ...same, sentences: [] });
  }
}

function changeVaried(varied) {
  querying.showSame({ ...state, varied }, index, found.question);
  slide({ varied });
}

// Searching

/** Says what goes on, and whether it goes on still. */
function say(note, isWorking = false) {
  if (byId("note").textContent !== note) byId("note").textContent = note; // else it might be read out again
  document.body.classList.toggle("working", isWorking);
  byId("hits").setAttribute("aria-busy", String(isWorking));
}

function showFailure(message) {
  byId("error").textContent = message;
  byId("failure").hidden = !message;
  if (message) byId("failure").scrollIntoView({ block: "nearest" });
}

/** Searches for what the state describes, unless that is shown already. */
async function search() {
  const isPossible = hasSource(state) && (state.view === "cite" || asksForSomething(state));
  const request = isPossible ? requestOf(state) : null;
  // What is put into the basket counts as cited in the next search, but does not start one.
  const wanted = request ? JSON.stringify([state.view, { ...request, cited: [] }]) : "";
  if (wanted === asked) return;
  asked = wanted;
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  showFailure("");
  if (!request) {
    say("");
    return;
  }
  say("Searching …", true);
  try {
    let last = null;
    for await (const step of find(state, request, { signal, waits })) {
      if (signal.aborted) return;
      if (step.record !== last?.record) take(step);
      last = step;
      say(step.note, true);
    }
    say(last.note);
  } catch (error) {
    if (isAborted(error) || signal.aborted) return;
    asked = "";
    say("");
    showFailure(error.message);
  }
}

const waits = (seconds) => say(`The server is busy; trying again in ${seconds} s.`, true);

function take({ record, papers: own }) {
  papers = own.filter((paper) => !state.not.includes(paper.paper_id));
  const question = record.query.question && { ...record.query.question, heading: record.query.heading };
  found = { hits: record.hits, hasMore: record.has_more, query: own, question };
  remember([...own, ...record.hits]);
  const remarks = [record.language_note, ...record.notes, inFilter(record)].filter(Boolean);
  byId("remarks").textContent = onPage(remarks.map(asSentence).join(" "));
  document.title = papers[0]?.title ? `${papers[0].title} · qbe` : "qbe: papers like this one";
  showLists();
  if (index.watches) watching.showWatches(state, papers);
  if (revealing) byId("results").scrollIntoView();
  revealing = false;
}

const asSentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function inFilter({ passing, papers: all }) {
  if (!(passing < all)) return "";
  return `${passing.toLocaleString("en")} of ${all.toLocaleString("en")} papers pass the filters`;
}

/** Adds the next papers to the list. */
async function more() {
  const start = found.hits.length;
  const all = requestOf(state);
  const request = { ...all, start, k: Math.min(all.k, MOST_IN_ALL - start) };
  const { signal } = controller;
  byId("more").disabled = true;
  showFailure("");
  say("Looking for more papers …", true);
  try {
    const record = await findMore(state, request, { signal, waits });
    if (signal.aborted) return;
    const ids = new Set(found.hits.map((hit) => hit.paper_id));
    const added = record.hits.filter((hit) => !ids.has(hit.paper_id));
    found = { ...found, hits: [...found.hits, ...added], hasMore: record.has_more };
    remember(added);
    say(`${found.hits.length} papers.`);
    showLists();
    if (added.length) focusHit(added[0].paper_id);
  } catch (error) {
    if (isAborted(error) || signal.aborted) return;
    say("");
    showFailure(error.message);
  } finally {
    byId("more").disabled = false;
  }
}

// Controls

function showFilters() {
  for (const name of FILTERS) if (byId(name).value !== state[name]) byId(name).value = state[name];
  const many = FILTERS.filter((name) => state[name]).length;
  byId("filter-count").textContent = many ? `(${many} set)` : "";
  byId("unfilter").hidden = !many;
}

function connectFilters() {
  for (const name of FILTERS) {
    byId(name).addEventListener("change", () => go({ [name]: byId(name).value.trim() }));
  }
  byId("unfilter").addEventListener("click", () => {
    go(Object.fromEntries(FILTERS.map((name) => [name, ""])));
    byId("from").focus();
  });
}

async function share() {
  const note = byId("share-note");
  try {
    await navigator.clipboard.writeText(location.href);
    note.textContent = "The link is copied; it shows this search, with your text.";
  } catch {
    note.textContent = "Copy the address of this page; it shows this search, with your text.";
  }
}

function connect() {
  asking.connect({ onText: startWith, onPaper: (id) => startFrom([id]) });
  querying.connect({ onSame: changeSame, onVaried: changeVaried });
  comparing.connect();
  watching.connect({ getState: () => state, onOpen: openSearch, onSince: (since) => go({ since }), onPaper: (id) => startFrom([id]) });
  connectFilters();
  byId("example").addEventListener("click", () => startFrom([index.example.paper_id]));
  document.addEventListener("keydown", press);
  byId("sort").addEventListener("change", () => go({ sort: byId("sort").value }, { replace: true }));
  byId("more").addEventListener("click", more);
  byId("again").addEventListener("click", search);
  byId("share").addEventListener("click", share);
  byId("export").addEventListener("click", () => exportBasket(state));
  byId("basket-search").addEventListener("click", () => startFrom(state.basket));
  byId("basket-clear").addEventListener("click", () => {
    go({ basket: [] }, { replace: true });
    byId("basket").focus();
  });
  byId("basket-cite").addEventListener("click", () => {
    asked = "";
    go({ view: "cite" });
    reveal();
  });
  for (const button of byId("views").children) {
    button.addEventListener("click", () => go({ view: button.dataset.view }));
  }
  for (const button of document.querySelectorAll("[data-jump]")) {
    button.addEventListener("click", () => {
      const place = byId(button.dataset.jump);
      const target = place.hidden ? byId("ask") : place;
      target.scrollIntoView();
      if (target !== place) byId("text").focus();
      else target.focus({ preventScroll: true });
    });
  }
  const hovered = (event) => emphasize(event.target.closest("article")?.dataset.paper ?? null);
  byId("hits").addEventListener("pointerover", hovered);
  byId("hits").addEventListener("focusin", hovered);
  window.addEventListener("popstate", arrive);
}

/** The keys of the page, where nothing is being typed. */
function press(event) {
  const isTyping = event.target.closest("input:not([type=range]), textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") asking.focusText();
  else if (event.key === "j") moveFocus(1);
  else if (event.key === "k") moveFocus(-1);
  else if (!pressOnHit(event)) return;
  event.preventDefault();
}

/** Whether a key is one for the hit that has the focus; Enter also presses the buttons and links in it. */
function pressOnHit({ key, target }) {
  const article = target.closest("#hits article");
  if (article && key === "b") actions.toggleBasket({ paper_id: article.dataset.paper });
  else if (article && (key === "o" || (key === "Enter" && target === article))) {
    const link = article.querySelector("h4 a, .credits a");
    if (link) link.click();
    else byId("note").textContent = "This paper has no link.";
  } else return false;
  return true;
}

/** Shows what the address describes. The basket stays with who goes back; a new address brings its own. */
function arrive(event) {
  const { basket } = state;
  state = read(location.hash);
  if (event?.state?.isOurs) state.basket = basket;
  history.replaceState({ isOurs: true }, "", write(state) || location.pathname);
  sliding = false;
  asking.fill(state);
  byId("ask").open = !hasSource(state);
  revealing = hasSource(state) && !event;
  show();
}

async function introduce() {
  try {
    index = await get("api/index");
    byId("collection").textContent = `${index.papers.toLocaleString("en")} papers`;
    byId("example").hidden = !index.example;
    byId("example").title = index.example?.title ?? "";
    if (!index.citations || !index.grades || index.watches) show();
  } catch (error) {
    showFailure(error.message);
  }
}

connect();
arrive();
introduce();
