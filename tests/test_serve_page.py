"""The page of `qbe serve` in a real browser, over a real server: the sample, and a paper full of script."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.browser import SECONDS, expect, opened
from support.serving import Server, serving, wait_until

from qbe import SHAPES, Paper, Sentence
from qbe.feeds.watches import Watch, changing
from qbe.index.update import append_papers

pytestmark = pytest.mark.slow

SCRIPT = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
EYES = [
    f"Eye photographs {SCRIPT} are graded by few specialists who screen for diabetes.",
    "We train a network on photographs of eyes without grades.",
    "It finds most eyes that need treatment.",
]
ABOUT = {"year": 2020, "authors": [f"Ann {SCRIPT}", "Bo Ek", "Cy Doe", "Di Fu", "Ed Gu"]}
ABOUT |= {"venue": f"Journal {SCRIPT}", "categories": ["cs.CV"], "doi": "10.1234/5"}
ABOUT |= {"url": "javascript:document.title='broken'"}
TITLE = f"Hostile {SCRIPT} title on eye photographs"
HOSTILE = {"paper_id": "..", "title": TITLE, "abstract": EYES, "metadata": ABOUT}
ABSTRACT = (
    "People with diabetes can lose their sight when damage to the retina is found too late, and there are "
    "not enough specialists to look at every photograph of an eye. We train a neural network on 150,000 "
    "photographs that nobody has graded, by asking it which two altered pictures show the same eye. With 500 "
    "graded ones it finds 93 per cent of the eyes that need treatment."
)
FACETS = ["background", "method", "result"]


@pytest.fixture(scope="module")
def index(graded_index, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "hostile.jsonl").write_text(json.dumps(HOSTILE))
    shutil.copytree(graded_index, folder / "index")
    append_papers(folder / "index", [str(folder / "hostile.jsonl")])
    return folder / "index"


@pytest.fixture(scope="module")
def server(index) -> Iterator[Server]:
    options = ("--watches", str(index.with_name("watches.json")), "--root-path", "/qbe")
    with serving(index, index.with_name("log"), *options) as running:
        yield running


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with opened() as context:
        yield context


class Visit:
    """A page with what it asked for, and what went wrong in it."""

    def __init__(self, context: Any, address: str) -> None:
        self.address, self.page = address, context.new_page()
        self.requests: list[Any] = []
        self.problems: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._console)
        self.hits = self.page.locator("#hits article")

    def _console(self, message: Any) -> None:
        # An answer that is no success is reported by the browser; the page deals with it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def open(self, fragment: str = "") -> "Visit":
        self.page.goto(self.address + fragment)
        expect(self.page.locator("#collection")).to_have_text("129 papers")
        return self

    def paste(self, text: str = ABSTRACT, title: str = "") -> None:
        self.page.get_by_label("Abstract", exact=True).fill(text)
        self.page.get_by_label("Its title").fill(title)
        self.button("Find papers").press("Enter")
        self.wait()

    def wait(self) -> None:
        """Until the final order is there."""
        expect(self.hits.first).to_be_visible()
        expect(self.page.locator("#hits")).to_have_attribute("aria-busy", "false")

    def again(self, address: str) -> None:
        """Open an address as if from elsewhere: one that differs in its fragment alone would not load."""
        self.page.goto("about:blank")
        self.page.goto(address)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def act(self, hit: Any, name: str) -> None:
        """Press a button among a hit's details: by a key, since a click waits for frames, of which a browser
        without a display may draw none after its window has changed.
        """
        details = hit.locator("details")
        if not details.evaluate("each => each.open"):
            details.locator("summary").press("Enter")
        details.get_by_role("button", name=name).press("Enter")

    def press(self, place: int, name: str) -> None:
        self.hits.nth(place).get_by_role("button", name=name).click()

    def add_two(self) -> list[str]:
        """Add the first two hits to the basket."""
        self.press(0, "Add to basket")
        self.press(1, "Add to basket")
        return self.ids[:2]

    @property
    def ids(self) -> list[str]:
        return self.hits.evaluate_all("articles => articles.map(article => article.dataset.paper)")

    @property
    def asked(self) -> dict[str, Any]:
        """The body of the last search."""
        paths = ("/api/search/stream", "/api/citations")
        bodies = [each.post_data for each in self.requests if urlsplit(each.url).path.endswith(paths)]
        return json.loads(bodies[-1])

    @property
    def fragment(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).fragment)

    def until_asked(self, *, answered: bool = True, **expected: Any) -> None:
        """Until a search with these values was sent, and answered."""
        end = time.monotonic() + SECONDS
        while any(self.asked.get(name) != value for name, value in expected.items()):
            assert time.monotonic() < end, f"expected {expected}, found {self.asked}"
            self.page.wait_for_timeout(20)
        if answered:
            self.wait()


@pytest.fixture
def visit(context, server) -> Iterator[Visit]:
    """The page, opened; nothing may go wrong in it, and nothing leaves the path that it is behind."""
    visit = Visit(context, f"http://127.0.0.1:{server.port}/qbe").open()
    visit.address += "/"
    yield visit
    visit.page.close()
    assert not visit.problems
    here = ("data:", "blob:", "about:", visit.address)
    assert [each.url for each in visit.requests[1:] if not each.url.startswith(here)] == []


def test_the_whole_story_of_a_search(visit, tmp_path):
    page = visit.page
    # Paste: the sentences are labelled, and papers are there.
    visit.paste(title="My draft")
    assert visit.asked["text"] == ABSTRACT and visit.asked["title"] == "My draft"
    sentences = page.locator(".sentence")
    expect(sentences).to_have_count(3)
    assert page.locator(".line select").evaluate_all("labels => labels.map(each => each.value)") == FACETS
    expect(visit.hits).to_have_count(20)
    # Pick a sentence, and another; then none.
    sentences.nth(1).click()
    visit.until_asked(sentences=[1])
    sentences.nth(0).click()
    visit.until_asked(sentences=[0, 1])
    expect(sentences.nth(0)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#same-summary")).to_have_text("Papers like the 2 sentences that you picked.")
    # Slide: sliders take the place of the picked sentences.
    page.get_by_label("Problem", exact=True).fill("1")
    page.get_by_label("Method", exact=True).fill("-0.5")
    visit.until_asked(like=["background:1"], unlike=["method:0.5"])
    assert "sentences" not in visit.asked
    expect(sentences.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#same-summary")).to_have_text("Papers with the same problem and another method.")
    # Filter by year.
    page.locator("#filters summary").click()
    page.get_by_label("From year").fill("2020")
    page.get_by_label("To year").fill("2021")
    page.get_by_label("To year").press("Enter")
    page.get_by_label("To year").blur()
    visit.until_asked(year_from=2020, year_to=2021)
    years = {credit.split()[0] for credit in page.locator("#hits .credits").all_inner_texts()}
    assert years == {"2020", "2021"}
    expect(page.locator("#filter-count")).to_have_text("(2 set)")
    # Why: both sentences beside each other, with their facets and the words in common marked.
    first = visit.hits.first
    first.locator("summary").click()
    pair = first.locator(".pair").first
    expect(pair.locator(".whose").nth(0)).to_contain_text("Your query")
    expect(pair.locator(".whose").nth(1)).to_contain_text("This paper")
    assert pair.locator(".tag").count() == 2
    assert page.locator("#hits details").nth(0).evaluate("each => each.open")
    # Basket and export.
    kept = visit.add_two()
    expect(page.locator("#basket-list li")).to_have_count(2)
    page.get_by_label("Format").select_option("bibtex")
    with page.expect_download() as download:
        visit.button("Export").click()
    assert download.value.suggested_filename == "papers.bib"
    download.value.save_as(tmp_path / "papers.bib")
    text = (tmp_path / "papers.bib").read_text(encoding="utf-8")
    titles = visit.hits.locator("h4").all_inner_texts()[:2]
    exported = re.findall(r"^\s*title = \{+(.*?)\}+,?$", text, re.MULTILINE)
    assert [re.sub(r"[{}]", "", title) for title in exported] == titles
    # Reload from the address alone.
    before = visit.ids
    visit.again(page.url)
    visit.wait()
    assert visit.ids == before
    assert visit.asked["year_from"] == 2020 and visit.asked["unlike"] == ["method:0.5"]
    expect(page.locator("#text")).to_have_value(ABSTRACT)
    expect(page.locator("#query-papers h3")).to_have_text("My draft")
    expect(page.locator("#basket-list li")).to_have_count(2)
    assert visit.fragment["basket"] == kept
    # Nothing is kept.
    assert not any(urlsplit(each.url).fragment for each in visit.requests if "/api/" in each.url)
    assert page.context.cookies() == []
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_back_undoes_a_step_of_the_search_and_keeps_the_basket(visit):
    visit.paste()
    visit.button("Method").click()
    visit.until_asked(like=["method:1"])
    by_method, page = visit.ids, visit.page
    visit.press(0, "Search from here")
    visit.until_asked(paper_ids=[by_method[0]])
    visit.press(0, "Add to basket")
    expect(page.locator("#basket-count")).to_have_text("1")
    page.go_back()
    visit.until_asked(text=ABSTRACT, like=["method:1"])
    assert visit.ids == by_method
    expect(page.locator("#basket-count")).to_have_text("1")
    page.go_back()
    visit.until_asked(text=ABSTRACT, like=None)
    page.go_forward()
    visit.until_asked(like=["method:1"])
    page.go_back()
    page.go_back()
    expect(page.locator("#results")).to_be_hidden()
    expect(page.get_by_label("Abstract", exact=True)).to_be_visible()


def test_script_in_papers_and_in_pasted_text_is_shown_as_text(visit):
    page = visit.page
    visit.paste(f"Eye photographs {SCRIPT} of diabetes. {ABSTRACT}", title=f"Mine {SCRIPT}")
    hostile = page.locator("#hits article", has_text="Hostile")
    expect(hostile.locator("h4")).to_have_text(TITLE)
    expect(hostile.locator(".credits")).to_contain_text(f"Journal {SCRIPT}")
    expect(hostile.locator(".credits")).to_contain_text("et al.")
    expect(page.locator("#query-papers h3")).to_have_text(f"Mine {SCRIPT}")
    links = [link.get_attribute("href") for link in hostile.get_by_role("link").all()]
    assert links == ["https://doi.org/10.1234/5"] * 2  # of the title, and beside it
    for detail in hostile.locator("summary").all():
        detail.click()
    hostile.get_by_role("button", name="Add to basket").click()
    expect(page.locator("#basket-list")).to_contain_text(TITLE)
    visit.act(hostile, "Compare")
    expect(page.locator("#compare-body .titles")).to_contain_text(TITLE)
    page.keyboard.press("Escape")
    visit.act(hostile, "Seen")
    page.locator("#left-out summary").click()
    expect(page.locator("#left-out-list")).to_contain_text(TITLE)
    page.reload()
    visit.wait()
    expect(page.locator("#basket-list")).to_contain_text(TITLE)
    assert page.locator("img, main script").count() == 0
    assert page.title() == f"Mine {SCRIPT} · qbe"


def test_a_title_opens_the_paper_and_a_library_s_in_zotero(visit):
    script = """async links => {
        const { titleOf, credits } = await import(new URL("dom.js", location.href));
        const paper = { paper_id: "K", title: "T", authors: [], links };
        const also = [...credits(paper).querySelectorAll("a")].map((each) => each.textContent);
        return [titleOf(paper).href ?? titleOf(paper), also];
    }"""
    item, arxiv = "zotero://select/groups/7/items/ABCD2345", "https://arxiv.org/abs/1904.00842"
    pdf = item.replace("select", "open-pdf")
    for links, expected in (
        ({"arxiv": arxiv, "doi": "https://doi.org/10.1/2"}, [arxiv, ["arXiv", "DOI"]]),
        ({"arxiv": arxiv, "zotero": item, "pdf": pdf}, [item, ["Zotero", "PDF", "arXiv"]]),
        ({"url": "javascript:alert(1)", "zotero": "zotero://debug/"}, ["T", []]),
    ):
        assert visit.page.evaluate(script, links) == expected


def test_the_empty_page_searches_from_a_paper_of_the_collection(visit):
    visit.button("Try a paper of this collection").click()
    visit.until_asked(paper_ids=["s001"])
    visit.page.locator("#filters summary").click()
    visit.page.get_by_label("Authors").fill("Bo Ek; Cy Doe")
    visit.page.get_by_label("Authors").blur()
    visit.until_asked(authors=["Bo Ek", "Cy Doe"])
    assert visit.ids == [HOSTILE["paper_id"]]
    remarks = visit.page.locator("#remarks")
    expect(remarks).to_contain_text("1 of 129 papers pass the filters.")
    visit.page.get_by_label("Authors").fill("Nobody Else")
    visit.page.get_by_label("Authors").blur()
    expect(remarks).to_contain_text("No paper of the index passes Authors Nobody Else.")
    visit.page.get_by_label("Authors").fill("")
    visit.page.get_by_label("Authors").blur()
    visit.page.keyboard.press("/")  # opens the form again
    visit.paste("Las redes neuronales profundas se usan para detectar incendios de bosques en las imágenes.")
    expect(remarks).to_contain_text("This does not look like English")


def test_a_fragment_full_of_nonsense_is_shown_as_an_empty_page(visit):
    page = visit.page
    page.goto(f"{visit.address}#problem=NaN&method=1e999&view=x&sort=y&sentences=a,-1&paper=&%ff%&{SCRIPT}")
    page.reload()
    expect(page.get_by_label("Abstract", exact=True)).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()
    assert page.evaluate("location.hash") in ("", "#method=1")


def test_axe_finds_no_serious_violation_and_nothing_overflows(visit):
    reason = "skipped: axe is not installed"
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=reason).Axe()
    page = visit.page

    def check(place: str) -> None:
        for width, scheme in ((1280, "light"), (360, "dark")):  # no colour depends on the width
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            violations = axe.run(page).response["violations"]
            serious = [each for each in violations if each["impact"] in ("serious", "critical")]
            found = [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious]
            assert not found, f"{place}, {width} px, {scheme}: {found}"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{place}, {width} px"

    check("start")
    page.get_by_label("Or a paper of this collection").press_sequentially("retina")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    check("completion")
    page.keyboard.press("Escape")
    visit.paste()
    page.locator(".sentence").first.press("Enter")
    visit.until_asked(sentences=[0])
    visit.hits.first.get_by_role("button", name="Add to basket").press("Enter")
    visit.act(visit.hits.nth(1), "Seen")
    visit.wait()
    page.locator("#filters summary").press("Enter")
    page.locator("#left-out summary").press("Enter")
    for summary in page.locator("#hits summary").all()[:4]:
        summary.press("Enter")
    check("results")
    visit.button("Papers to cite").press("Enter")
    visit.until_asked(cited=visit.fragment["basket"])
    check("citations")
    visit.act(visit.hits.first, "Compare")
    expect(page.locator("#compare section")).to_have_count(3)
    check("comparison")


def test_a_result_is_reached_by_keyboard_alone(visit):
    page, keyboard = visit.page, visit.page.keyboard

    def tab_to(name: str) -> None:
        for _ in range(60):
            keyboard.press("Tab")
            here = page.evaluate("[document.activeElement.id, document.activeElement.textContent.trim()]")
            if name in here:
                return
        raise AssertionError(f"{name} is not reached by the Tab key")

    tab_to("text")
    keyboard.insert_text(ABSTRACT)
    tab_to("Find papers")
    keyboard.press("Enter")
    visit.wait()
    assert page.evaluate("document.activeElement.id") == "results-title"
    page.locator("#map summary").press("Enter")
    tab_to("1")  # the circle of the first paper
    keyboard.press("ArrowRight")
    keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.paper") == visit.ids[1]
    for key, place in (("j", 2), ("k", 1), ("k", 0), ("k", 0), ("j", 1)):
        keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.paper") == visit.ids[place]
    titles = visit.hits.locator("h4").all_inner_texts()
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") in ("Add to basket", "DOI", titles[1])
    tab_to("Add to basket")
    keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "In the basket ✓"
    page.locator("#problem").focus()
    for _ in range(4):
        keyboard.press("ArrowRight")
    visit.until_asked(like=["background:1"], unlike=[])
    assert page.evaluate("document.activeElement.id") == "problem"
    expect(page.locator("#problem")).to_have_attribute("aria-valuetext", "same")
    keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    keyboard.press("Control+A")
    keyboard.insert_text("Does j/k stay text in a field? " + ABSTRACT)
    keyboard.press("Control+Enter")
    visit.until_asked(text="Does j/k stay text in a field? " + ABSTRACT)


def test_keys_open_the_link_of_a_hit_and_put_it_into_the_basket(visit):
    visit.paste(f"Eye photographs of diabetes. {ABSTRACT}")
    script = "() => { links = []; onclick = ({ target }) => !target.href || !links.push(target.href); }"
    visit.page.evaluate(script)
    hit, keyboard = visit.page.locator("#hits article", has_text="Hostile"), visit.page.keyboard
    hit.focus()
    for key, basket, links in (("b", "1", 0), ("Enter", "1", 1), ("o", "1", 2), ("b", "0", 2)):
        keyboard.press(key)
        expect(visit.page.locator("#basket-count")).to_have_text(basket)
        assert visit.page.evaluate("window.links") == ["https://doi.org/10.1234/5"] * links
        assert visit.page.evaluate("document.activeElement.dataset.paper") == HOSTILE["paper_id"]
    hit.get_by_role("button", name="Add to basket").press("Enter")  # which opens nothing
    expect(visit.page.locator("#basket-count")).to_have_text("1")
    assert len(visit.page.evaluate("window.links")) == 2


def test_a_question_is_shown_as_it_was_read_and_a_title_in_the_text_as_such(visit):
    asked, summary = "does eye tracking help usability testing?", visit.page.locator("#same-summary")
    visit.paste(asked)
    heading = "searched for the method “eye tracking” and the problem “usability testing”."
    expect(summary).to_have_text(f"Papers for “{asked}”: {heading}")
    expect(visit.page.locator("#query-papers h3")).to_have_text(asked)
    expect(visit.button("Whole question")).to_have_attribute("aria-pressed", "true")
    visit.button("Search with the text as it is").press("Enter")
    visit.until_asked(sentences=[0])
    expect(visit.page.locator(".sentence")).to_have_text([asked])
    visit.page.keyboard.press("/")
    visit.paste(f"On eyes\n\n{ABSTRACT}")
    expect(visit.page.locator("#query-papers h3")).to_have_text("On eyes")
    expect(visit.page.locator(".sentence")).to_have_count(3)
    expect(summary).to_have_text("Papers like the whole abstract.")


def test_the_first_ranking_is_replaced_by_the_final_one_and_said_politely(visit):
    script = """
        window.notes = [];
        const note = document.querySelector("#note");
        new MutationObserver(() => window.notes.push(note.textContent)).observe(note, {childList: true});"""
    visit.page.evaluate(script)
    visit.button("Try the sample abstract").click()
    visit.button("Method").click()
    visit.until_asked(like=["method:1"])
    notes = [re.sub(r"\d+\.\d s", "N s", note) for note in visit.page.evaluate("window.notes")]
    closer = "The first 20 papers after N s; now the best are compared more closely …"
    final = "The first 20 papers, in their final order (N s)."
    # Said again with the grades, where that took longer.
    assert [*dict.fromkeys(notes)][-3:] == ["Searching …", closer, final]
    expect(visit.page.locator("#note")).to_have_attribute("aria-live", "polite")


def test_a_paper_is_found_by_words_of_its_title_and_by_its_id(visit):
    page = visit.page
    pick = page.get_by_label("Or a paper of this collection")
    pick.press_sequentially("two crops of a par")
    expect(page.get_by_role("option")).to_have_count(1)
    pick.press("ArrowDown")
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    assert pick.get_attribute("aria-activedescendant") == "pick-0"
    pick.press("Enter")
    visit.until_asked(paper_ids=["s036"])
    expect(page.locator("#query-papers h3")).to_contain_text("Two Crops of a Paragraph")
    page.locator("#ask summary").click()
    for written, paper_id in (("s001", "s001"), ("https://doi.org/10.1234/5", HOSTILE["paper_id"])):
        pick.fill(written)
        pick.press("Enter")
        visit.until_asked(paper_ids=[paper_id])
        page.locator("#ask summary").click()
    pick.fill("zzzz")
    expect(page.locator("#pick-note")).to_have_text("No paper has these words in its title, or this id")


def test_papers_of_the_basket_are_searched_for_together(visit):
    visit.paste()
    ids = visit.add_two()
    visit.button("Search with all of these").click()
    visit.until_asked(paper_ids=ids)
    expect(visit.page.locator(".query-paper")).to_have_count(2)
    assert not set(ids) & set(visit.ids)
    visit.page.locator(".query-paper").first.get_by_role("button", name="Drop").click()
    visit.until_asked(paper_ids=ids[1:])


def test_papers_that_are_not_wanted_or_were_seen_are_left_out_until_brought_back(visit):
    visit.paste()
    first, second, third, *_ = visit.ids
    visit.act(visit.hits.nth(0), "Not like this")
    visit.until_asked(not_paper_ids=[first], exclude=[])
    assert first not in visit.ids
    # The query is shown as before, with what it is not like, which can be dropped.
    expect(visit.page.locator(".sentence")).to_have_count(3)
    unwanted = visit.page.locator("#query-not li")
    expect(unwanted).to_contain_text("(not like this)")
    unwanted.get_by_role("button").click()
    visit.until_asked(not_paper_ids=[], exclude=[])
    visit.act(visit.hits.nth(0), "Not like this")
    visit.until_asked(not_paper_ids=[first], exclude=[])
    seen = visit.ids[0]
    visit.act(visit.hits.nth(0), "Seen")
    visit.until_asked(not_paper_ids=[first], exclude=[seen])
    assert visit.page.evaluate("document.activeElement.dataset.paper") is not None
    visit.page.locator("#left-out summary").click()
    expect(visit.page.locator("#left-out-list li")).to_have_count(2)
    for _ in range(2):
        visit.page.locator("#left-out-list button").first.click()
    visit.until_asked(not_paper_ids=[], exclude=[])
    assert visit.ids[:3] == [first, second, third]


def test_papers_are_sorted_by_year_more_are_added_and_a_list_is_mixed_and_varied(visit):
    visit.paste()
    best = visit.ids
    visit.button("More papers").click()
    expect(visit.hits).to_have_count(40)
    assert visit.ids[:20] == best
    visit.page.get_by_label("Sort by").select_option("newest")
    years = [int(text.split()[0]) for text in visit.page.locator("#hits .credits").all_inner_texts()]
    assert years == sorted(years, reverse=True)
    visit.page.get_by_label("Sort by").select_option("oldest")
    assert visit.fragment["sort"] == ["oldest"]
    visit.page.get_by_label("Sort by").select_option("rank")
    assert visit.ids[:20] == best
    visit.button("A mix of these three").click()
    visit.until_asked(like=list(SHAPES))
    expect(visit.page.locator("#hits .corner")).to_have_count(20)
    expect(visit.page.locator("#remarks")).to_contain_text(" with the same method and another problem")
    visit.page.get_by_label("Varied").fill("0.3")
    visit.until_asked(diversity=0.3, like=list(SHAPES))
    assert visit.fragment["mix"] and visit.fragment["varied"] == ["0.3"]
    visit.page.get_by_label("Method", exact=True).fill("1")
    visit.until_asked(like=["method:1"], diversity=0.3)


def test_citations_are_recommended_for_the_pasted_text_beside_those_of_the_basket(visit):
    visit.paste()
    visit.press(0, "Add to basket")
    (kept,) = visit.fragment["basket"]
    visit.button("Recommend citations").click()
    visit.until_asked(text=ABSTRACT, cited=[kept])
    expect(visit.page.locator("#note")).to_contain_text("papers to cite")
    assert kept not in visit.ids
    expect(visit.page.locator(".sentence")).to_have_count(3)
    expect(visit.button("Papers to cite")).to_have_attribute("aria-pressed", "true")
    visit.page.reload()
    visit.wait()
    assert visit.fragment["view"] == ["cite"]


def test_citations_are_not_offered_where_the_index_lacks_what_they_need(visit):
    def lacking(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"citations": False})

    visit.page.route("**/api/index", lacking)
    visit.page.goto("about:blank")
    visit.open("#view=cite").paste()
    assert "view" not in visit.fragment
    expect(visit.button("Papers to cite")).to_be_disabled()
    visit.press(0, "Add to basket")
    expect(visit.button("Recommend citations")).to_be_disabled()
    expect(visit.page.locator("#basket-cite-hint")).to_contain_text("This index does not have")


def test_a_key_is_asked_for_once_kept_for_the_tab_and_sent(visit):
    given: list[str | None] = []

    def guarded(route: Any) -> Any:
        key = route.request.headers.get("authorization")
        given.append(key)
        if key == "Bearer right":
            return route.continue_()
        return route.fulfill(status=401, json={"error": {"message": "expected an API key, found none"}})

    page = visit.page
    page.route("**/api/**", guarded)
    page.reload()
    for key in ("wrong", "right"):
        page.get_by_label("API key").fill(key)
        visit.button("Continue").click()
        page.wait_for_timeout(100)
    expect(page.locator("#collection")).to_have_text("129 papers")
    visit.paste()
    assert given[:3] == [None, "Bearer wrong", "Bearer right"] and set(given[3:]) == {"Bearer right"}
    assert page.evaluate("Object.values(sessionStorage)") == ["right"]
    page.evaluate("sessionStorage.clear()")
    page.reload()
    visit.button("Cancel").click()
    expect(page.locator("#error")).to_have_text("expected an API key, found none")


def test_a_busy_server_is_asked_again_when_it_says(visit):
    times: list[float] = []

    def busy(route: Any) -> Any:
        times.append(time.monotonic())
        if len(times) > 1:
            return route.continue_()
        message = {"error": {"message": "too many searches are waiting"}}
        return route.fulfill(status=429, headers={"Retry-After": "2"}, json=message)

    visit.page.route("**/api/search/stream", busy)
    visit.page.get_by_label("Abstract", exact=True).fill(ABSTRACT)
    visit.button("Find papers").click()
    expect(visit.page.locator("#note")).to_have_text("The server is busy; trying again in 2 s.")
    visit.wait()
    assert len(times) == 2 and times[1] - times[0] >= 2


def test_what_is_wrong_is_shown_in_one_line(visit):
    page, stream = visit.page, "**/api/search/stream"
    error = page.locator("#error")

    def broken(route: Any) -> None:
        answer = route.fetch()
        first = answer.text().replace("\r\n", "\n").split("\n\n")[0]
        event = 'event: error\ndata: {"error": {"message": "the reranker has no time"}}'
        route.fulfill(response=answer, body=f"{first}\n\n{event}\n\n")

    # The server has gone.
    page.route(stream, lambda route: route.abort())
    page.get_by_label("Abstract", exact=True).fill(ABSTRACT)
    visit.button("Find papers").click()
    expect(error).to_have_text("The server does not answer; is it still running?")
    page.unroute(stream)
    # An error in the middle of a search keeps the first list.
    page.route(stream, broken)
    visit.button("Try again").click()
    expect(error).to_have_text("the reranker has no time")
    expect(visit.hits).to_have_count(20)
    expect(page.locator("#hits")).to_have_attribute("aria-busy", "false")
    page.unroute(stream)
    # The server refuses what was asked.
    page.locator("#filters summary").click()
    page.get_by_label("From year").fill("soon")
    page.get_by_label("From year").blur()
    expect(error).to_contain_text("From year: ")
    assert "\n" not in error.inner_text()
    page.get_by_label("From year").fill("2020")
    page.get_by_label("To year").fill("2019")
    page.get_by_label("To year").blur()
    expect(error).to_contain_text(") must not be after To year (")
    assert "`" not in error.inner_text()
    expect(error).to_be_in_viewport()
    visit.button("Remove filters").click()
    visit.until_asked(text=ABSTRACT)
    expect(page.locator("#failure")).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_search_leads_to_its_results(visit, width):
    visit.page.set_viewport_size({"width": width, "height": 900 if width > 1000 else 844})
    visit.paste()
    in_view = "hits => hits.filter(each => each.getBoundingClientRect().bottom <= innerHeight).length"
    assert visit.hits.evaluate_all(in_view) >= (2 if width > 1000 else 1)
    expect(visit.hits.first.locator("h4")).to_be_in_viewport()
    # The rest of what can be done is behind one disclosure.
    assert visit.hits.first.get_by_role("button").count() == 2
    assert visit.hits.first.locator("summary").count() == 1


def test_a_wrong_label_is_corrected_for_this_search(visit):
    visit.paste()
    visit.button("Method").click()
    visit.until_asked(like=["method:1"])
    counts = visit.page.locator(".sentence.counts")
    expect(counts).to_have_count(1)
    visit.page.get_by_label("What sentence 1 is about").select_option("Method")
    visit.until_asked(labels=["0:method"])
    expect(counts).to_have_count(2)
    visit.page.get_by_label("What sentence 2 is about").select_option("Other")
    visit.until_asked(labels=["0:method", "1:other"])
    expect(counts).to_have_count(1)
    visit.page.reload()
    visit.wait()
    expect(visit.page.get_by_label("What sentence 2 is about")).to_have_value("other")
    assert visit.fragment["labels"] == ["0:method,1:other"]
    visit.act(visit.hits.first, "Compare")
    visit.page.keyboard.press("Escape")
    visit.press(0, "Search from here")
    visit.until_asked(text=None)
    assert "labels" not in visit.asked


FORMULAS = {
    r"in ${O}(n \log n)$ time": "in O(n log n) time",
    r"an $\varepsilon$-net of size $O(\frac{d}{\epsilon^2})$": "an ε-net of size O(d/ε²)",
    r"$\mathbb{R}^{n+1}$, $x_{ij} \le \sqrt{2}$": "Rⁿ⁺¹, x_(ij) ≤ √(2)",
    "costs $5 here and $6 there": "costs $5 here and $6 there",
    r"\emph{very} fast, \(k \to \infty\)": "very fast, k → ∞",
    r"$\foo\bar{x}$ $\{1, 2\}$ and \$5": r"foobarx {1, 2} and \$5",
    "a \u202egnp.exe \u2066b": "a gnp.exe b",
}


def test_formulas_are_read_as_text_and_ids_stay(visit):
    script = """async ([name, text]) => {
        const { readable } = await import(new URL("plain.js", location.href));
        return readable(name, text);
    }"""
    for text, shown in FORMULAS.items():
        assert visit.page.evaluate(script, ["title", text]) == shown
    assert visit.page.evaluate(script, ["paper_id", "$a_1$"]) == "$a_1$"


def test_a_pdf_is_chosen_or_dropped(visit):
    pytest.importorskip("reportlab")
    from support.pdfs import Paper, article, laid_out, without_abstract

    visit.open()
    paper = Paper("On eye photographs", ABSTRACT, [ABSTRACT.replace("People", "Some people")])
    file = {"name": "draft.pdf", "mimeType": "application/pdf", "buffer": laid_out(article, paper)}
    visit.page.get_by_label("Or its file").set_input_files(file)
    visit.wait()
    assert visit.page.locator("#text").input_value() == ABSTRACT
    assert visit.page.locator("#title").input_value() == paper.title
    # One without an abstract is shown before it is searched with.
    visit.open()
    script = """data => {
        const all = new DataTransfer();
        all.items.add(new File([new Uint8Array(data)], "draft.pdf"));
        return all;
    }"""
    transfer = visit.page.evaluate_handle(script, list(laid_out(without_abstract, paper)))
    visit.page.dispatch_event("#ask", "drop", {"dataTransfer": transfer})
    expect(visit.page.locator("#file-note")).to_contain_text("No abstract was found")
    assert visit.page.locator("#text").input_value() == paper.body[0]
    visit.button("Find papers").click()
    visit.wait()
    # What cannot be read is said.
    visit.open()
    visit.page.get_by_label("Or its file").set_input_files({**file, "buffer": b"%PDF-1.7"})
    expect(visit.page.locator("#file-note")).to_contain_text("expected a whole PDF")
    several = b"@article{a, title = {A}, abstract = {B.}}\n" * 2
    one = "found several; give a file of one. To search in a library: qbe index --corpus FILE"
    for name, data, told in (
        ("a.docx", b"PK\3\4", "found a Word document; paste its abstract in the box above"),
        ("a.bib", several, one),
    ):
        visit.page.get_by_label("Or its file").set_input_files({**file, "name": name, "buffer": data})
        expect(visit.page.locator("#file-note")).to_contain_text(told)
    assert not visit.problems


def test_a_search_is_watched_and_what_is_new_for_it_is_shown(visit, server, index):
    """The last test, since papers are added."""
    file, page = index.with_name("watches.json"), visit.page
    panel = page.locator("#watches")
    expect(panel).to_contain_text("No search is watched yet")
    expect(visit.button("Watch this search")).to_be_hidden()
    visit.paste(title="On eyes")
    visit.button("Problem").click()
    visit.until_asked(like=["background:1"])
    ids = visit.ids
    visit.again(page.url)
    visit.wait()
    assert visit.ids == ids
    expect(page.get_by_label("Name of this search")).to_have_value("On eyes")
    visit.button("Watch this search").click()
    expect(page.locator("#watch-note")).to_contain_text("“On eyes” is watched")
    expect(panel.locator("li")).to_contain_text("no new papers")
    visit.button("Watch this search").click()
    expect(page.locator("#watch-note")).to_contain_text("expected another")

    def found(paper_id: str, title: str, what: str) -> None:
        """Add a paper, and open the page again once the first watch has something of this kind."""
        texts = ABSTRACT.split(". ")
        append_papers(index, [Paper(paper_id, title, tuple(Sentence(f"{text}.") for text in texts))])
        wait_until(lambda: server.ask("GET", "/api/watches").json()["watches"][0][what])
        visit.again(visit.address)

    found("new", f"New {SCRIPT}", "papers")
    expect(panel.locator("li").first).to_contain_text("1 new paper")
    panel.locator("summary").click()
    expect(panel.locator("details li")).to_contain_text(f"New {SCRIPT}")
    panel.get_by_role("button", name="Search On eyes").click()
    visit.until_asked(text=ABSTRACT, like=["background:1"])
    page.get_by_label("New since").fill("2999-01-01")
    page.get_by_label("New since").blur()
    expect(panel.locator("li")).to_have_count(1)  # until then the new paper is an item, too
    expect(panel.locator("li")).to_contain_text("no new papers")
    assert visit.fragment["since"] == ["2999-01-01"]
    panel.get_by_role("button", name="Remove On eyes").click()
    expect(panel.locator("li")).to_have_count(0)
    page.locator("#filters summary").click()
    page.get_by_label("From year").fill("2999")
    page.get_by_label("From year").blur()
    page.get_by_label("Name of this search").fill("Later")
    visit.button("Watch this search").click()
    expect(page.locator("#watch-note")).to_contain_text("“Later” is watched (from 2999 on)")
    expect(page.locator("#watch-note")).to_contain_text("No paper of the collection passes")
    expect(panel.locator("li")).to_contain_text("Filters: from 2999 on")
    panel.get_by_role("button", name="Remove Later").click()
    expect(panel.locator("li")).to_have_count(0)

    with changing(file) as watches:
        watches.add(Watch("lost", {}, 0, str(file.with_name("nosuch.txt"))))
    found("newer", "Newer", "problem")
    expect(panel.locator("li")).to_contain_text("The last search failed: ")
