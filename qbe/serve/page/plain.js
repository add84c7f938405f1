// Texts as people read them: formulas of LaTeX in letters and signs, and nothing that turns letters around.

const table = (text) => {
  const pairs = text.split(/\s+/).map((word, place, words) => [word, words[place + 1]]).filter((_, place) => place % 2 === 0);
  return Object.assign(Object.create(null), Object.fromEntries(pairs)); // a formula may say \constructor
};
const SIGNS = table(
  "alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ " +
    "sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω " +
    "le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ sim ∼ simeq ≃ equiv ≡ propto ∝ ll ≪ gg ≫ times × cdot · pm ± mp ∓ div ÷ ast ∗ star ⋆ circ ∘ " +
    "to → rightarrow → leftarrow ← Rightarrow ⇒ mapsto ↦ in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩ setminus ∖ emptyset ∅ forall ∀ exists ∃ " +
    "infty ∞ sum ∑ prod ∏ int ∫ partial ∂ nabla ∇ ell ℓ hbar ℏ ldots … dots … cdots ⋯ langle ⟨ rangle ⟩ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ " +
    "mid | vert | Vert ‖ prime ′ degree ° oplus ⊕ otimes ⊗ wedge ∧ vee ∨ neg ¬ perp ⊥ dagger †",
);
const RAISED = table("0 ⁰ 1 ¹ 2 ² 3 ³ 4 ⁴ 5 ⁵ 6 ⁶ 7 ⁷ 8 ⁸ 9 ⁹ + ⁺ - ⁻ n ⁿ i ⁱ");
const LOWERED = table("0 ₀ 1 ₁ 2 ₂ 3 ₃ 4 ₄ 5 ₅ 6 ₆ 7 ₇ 8 ₈ 9 ₉ + ₊ - ₋");
/** Commands of which only what they are applied to is read. */
const SILENT =
  /^(math(bb|bf|cal|frak|it|rm|scr|sf|tt)|text(bf|it|rm|sc|sf|tt)?|operatorname|boldsymbol|emph|rm|bf|it|em|cal|left|right|[bB]igg?[lr]?|(display|text)style|limits|mathop)$/;
const FORMULA = /\$\$([^$]{1,500})\$\$|\$([^$]{1,500})\$|\\\((.{1,500}?)\\\)/g;
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const EXACT = new Set(["paper_id", "query_id", "arxiv", "doi", "url", "name", "search"]);

/** An answer of the server: texts as people read them, addresses, ids and what is kept as they are. */
export const parsed = (text) => walked("", JSON.parse(text));

function walked(name, value) {
  if (EXACT.has(name) || value === null || typeof value !== "object") return readable(name, value);
  if (Array.isArray(value)) return value.map((each) => walked(name, each));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, walked(key, each)]));
}

/** A text as people read it, unless its name says that it is used as it is. */
export function readable(name, value) {
  if (typeof value !== "string" || EXACT.has(name)) return value;
  const text = value.replace(DIRECTIONS, "");
  if (!/[$\\]/.test(text)) return text;
  return text
    .replace(FORMULA, (whole, ...parts) => {
      const tex = parts.slice(0, 3).find((part) => part !== undefined);
      // Two prices in a sentence are no formula.
      return /^\s|\s$/.test(tex) && !/[\\^_{}=]/.test(tex) ? whole : formula(tex);
    })
    .replace(/\\(?:emph|text(?:bf|it|rm|sc|sf|tt))\{([^{}]*)\}/g, "$1");
}

const FIELDS = {
  text: "abstract", title: "title", year_from: "From year", year_to: "To year", categories: "Categories", authors: "Authors",
  where: "Technique",
};
const MESSAGES = [
  ["paste its abstract as `text`, its title as `title`", "paste its abstract in the box above"],
  [/(expected one paper, found (?:several|more)[^;]*);.*/, "$1; give a file of one. To search in a library: qbe index --corpus FILE indexes it"],
  ["such as technique=attention", "such as attention"],
  ["of same-problem-other-method", "with the same problem and another method"],
  ["of same-method-other-problem", "with the same method and another problem"],
  ["of competitors", "with the same problem and method"],
  [/expected `years` from an earlier to a later one, found (\d+)-(\d+)/, "From year ($1) must not be after To year ($2)"],
  ["`where` technique=", "`where` "],
  [/expected facets or one shape as `like`, found a mix.*/, "a mix cannot be watched; choose one of its three"],
];

/** A message of the server in the words of the page, in place of those of the command line and of programs. */
export function onPage(message) {
  return MESSAGES.reduce((text, [found, said]) => text.replace(found, said), message)
    .replace(/^(\w+)(?:\.\d+)*: /, (whole, name) => (FIELDS[name] ? `${FIELDS[name]}: ` : whole))
    .replace(/`([^`]*)`/g, (_, name) => FIELDS[name] ?? name);
}

function formula(tex) {
  return tex
    .replace(/\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}/g, "$1/$2")
    .replace(/\\sqrt\s*\{([^{}]*)\}/g, "√($1)")
    .replace(/\\([A-Za-z]+)(\s*)/g, (_, name, blank) => (SILENT.test(name) ? "" : `${SIGNS[name] ?? name}${blank && " "}`))
    .replace(/\\[,;:! ]|~/g, " ")
    .replace(/([_^])(?:\{([^{}]*)\}|([^\s{}]))/g, (_, sign, group, single) => placed(sign, group ?? single))
    .replace(/(?<!\\)[{}]/g, "")
    .replace(/\\(.)/g, "$1")
    .replace(/\s+/g, " ")
    .trim();
}

function placed(sign, text) {
  const forms = sign === "^" ? RAISED : LOWERED;
  if ([...text].every((each) => each in forms)) return [...text].map((each) => forms[each]).join("");
  return text.length > 1 ? `${sign}(${text})` : `${sign}${text}`;
}
