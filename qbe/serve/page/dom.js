// Elements are made here, of text alone: nothing that comes from a paper or a user is read as markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes (`on...`: listeners; null and false: none) and children (elements or texts). */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** The same for SVG. */
export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** Facets: their names for the server and the command line, and the words that people read. */
export const FACETS = [
  { name: "background", shown: "Problem", style: "problem" },
  { name: "method", shown: "Method", style: "method" },
  { name: "result", shown: "Findings", style: "result" },
];
const OTHER = { name: "other", shown: "Other", style: "other" };
const [PROBLEM, ...REST] = FACETS;

/** What a sentence may be; an aim says what is done and how. */
export const LABELS = [PROBLEM, { name: "aim", shown: "Aim", style: "problem" }, ...REST, OTHER];

export const facetOf = (name) => LABELS.find((label) => label.name === name) ?? OTHER;

/** A facet as a small coloured word. */
export function tag(name) {
  const facet = facetOf(name);
  return make("span", { class: `tag ${facet.style}` }, facet.shown);
}

const LINKS = { zotero: "Zotero", pdf: "PDF", arxiv: "arXiv", doi: "DOI", url: "Web page" };

/** Addresses of a paper by name, its item in Zotero first; only those that lead to the web or into Zotero. */
function addressesOf(paper) {
  const isSafe = (address) => /^(https?:\/\/|zotero:\/\/(select|open-pdf)\/)/i.test(address ?? "");
  return Object.keys(LINKS).map((name) => [name, paper.links?.[name]]).filter(([, address]) => isSafe(address));
}

function link(address, focus, text) {
  const elsewhere = /^http/i.test(address) ? { target: "_blank", rel: "noopener noreferrer" } : {};
  return make("a", { href: address, ...elsewhere, "data-focus": focus }, text);
}

/** The title of a paper, which opens the paper where its address is known. */
export function titleOf(paper) {
  const [first] = addressesOf(paper).filter(([name]) => name !== "pdf");
  const title = paper.title || paper.paper_id;
  return first ? link(first[1], `title ${paper.paper_id}`, title) : title;
}

const MOST_AUTHORS = 4;

/** Year, authors, venue and links of a paper in a line. */
export function credits(paper) {
  const authors = paper.authors.slice(0, MOST_AUTHORS).join(", ");
  const others = paper.authors.length > MOST_AUTHORS ? " et al." : "";
  const parts = [paper.year, authors + others, paper.venue].filter(Boolean).map((text) => make("span", {}, String(text)));
  const links = addressesOf(paper).map(([name, address]) => link(address, `${name} ${paper.paper_id}`, LINKS[name]));
  return make("p", { class: "credits" }, [...parts, ...links]);
}

/** Calls `action` once nothing has happened for a while; `cancel` leaves out what is still to come. */
export function debounced(action, milliseconds) {
  let timer;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
