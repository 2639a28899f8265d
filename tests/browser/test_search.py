"""The search finds what the pages say, in the reader's language, and costs nothing before it is opened."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.browser.conftest import open_tab
from tests.configuration import text
from tools.languages.markdown import read
from tools.site.search import index

FRAGMENTS = "**/pagefind/fragment/**"  # what the sections that are found say

# What readers look for, and a page that must be found.
QUERIES = {
    "en": {
        "causal mask": "foundations/causal",
        "torch.cat": "practice/capstone",
        "cross-attention": "cross/cross-attention",
    },
    "it": {"maschera causale": "foundations/causal", "attenzione": "index", "masked_fill": "foundations/causal"},
    "zh": {"因果掩码": "foundations/causal", "多头注意力": "foundations/many-heads", "解码器": "cross/cross-attention"},
}

# Messages that people paste, with numbers and paths of their own, and what says what to do: the first page, or one of
# its sections that are shown.
MESSAGES = {
    "No available kernel. Aborting execution.": "kernels/which-kernel#messages",
    "attn_bias is not correctly aligned (strideM). attn_bias.stride(2) = 1023, and": "kernels/which-kernel#messages",
    "sdp_utils.cpp:263: UserWarning: 1Torch was not compiled with flash attention": "kernels/which-kernel#messages",
    "The shape of the 2D attn_mask is torch.Size([128, 64])": "masks/transformer-layers#arguments",
    "torch._dynamo hit config.recompile_limit (64)": "kernels/flex-attention#lengths",
    "Expected query, key and value to all be of dtype: {Half, BFloat16}": "kernels/which-kernel#messages",
    "probability tensor contains either inf, nan or element < 0": "masks/combining",
    "local variable 'attn_weights' referenced before assignment": "practice/look-inside#memory",
    "The `output_attentions` attribute is not supported when using": "practice/look-inside#in-torch",
}


def search(opened, words):
    """Open the search with a key, and search as an input method does: the words come at once."""
    opened.keyboard.press("/")
    expect(opened.locator("dialog.search")).to_be_visible()
    opened.keyboard.press("Delete")  # the words of the last search are selected
    expect(opened.locator(".search__results a")).to_have_count(0)
    opened.keyboard.insert_text(words)
    expect(opened.locator(".search__results")).to_have_attribute("data-words", words)


def results(opened):
    """The paths of the pages that are shown, without anchors."""
    links = opened.locator(".search__results a.search__page").evaluate_all("links => links.map(link => link.href)")
    return [link.partition(site.PREFIX)[2] for link in links]


@pytest.mark.parametrize("language", QUERIES)
def test_the_search_finds_the_page_of_a_question_and_none_of_another_language(tab, language):
    pages = {page.path for page in site.PAGES if page.language == language}
    opened = tab.open(site.Page(language, "foundations/causal").path)
    for words, slug in QUERIES[language].items():
        search(opened, words)
        found = results(opened)
        assert site.Page(language, slug).path in found, words
        assert set(found) <= pages, words
        opened.keyboard.press("Escape")


# What answers first: a page, if its name is asked for, or else a section.
SOUGHT = {
    "en": {
        "nan": "masks/combining#empty",
        "is_causal": "foundations/causal#in-torch",
        "tril": "foundations/causal#formula",
        "KV cache": "cache/kv-cache",
        "grouped query attention": "cache/grouped",
        "padding left": "masks/padding#generation",
        "nn.MultiheadAttention": "masks/multihead-attention",
        "LlamaAttention": "cache/grouped#class",
        "BertSelfAttention": "masks/padding#module",
        "CausalSelfAttention": "foundations/many-heads#split",
        "repeat_kv": "cache/grouped#order",
        "apply_rotary_pos_emb": "position/rope#layouts",
    },
    "it": {"True significa mascherato?": "masks/polarity"},
    "zh": {"分组查询": "cache/grouped"},
}
# A letter is missing, doubled or wrong, or two have changed places: what was meant, and where it leads.
MISTYPED = {
    "en": {"sofmax": "softmax", "sotfmax": "softmax", "maks": "mask", "pading": "padding"},
    "it": {"sotfmax": "softmax", "attenzoine": "attenzione", "mascera": "maschera"},
    "zh": {"sofmax": "softmax", "pading": "padding"},
}

# For each words those that were meant and the address that Enter opens; the dialog, driven by hand, is slower.
LED = """async all => {
  const { src } = document.querySelector('script[src$="search.js"]')
  const { answer } = await import(src.replace("search.js", "find.js"))
  return Promise.all(all.map(async asked => {
    const { pages: [page], words } = await answer(asked)
    const sections = page.sections.map(({ url }) => url)
    return [asked, words, page.isNamed ? [page.url] : sections.slice(0, 3)]
  }))
}"""


@pytest.mark.parametrize("language", QUERIES)
def test_words_messages_and_typing_errors_lead_first_to_the_section_that_answers(tab, language):
    """Those of the questions and aliases, too; of a message the first three sections count."""
    opened = tab.open(site.Page(language, "foundations/causal").path)
    wanted = dict(SOUGHT[language])
    for page in (page for page in site.PAGES if page.language in ("en", language)):
        source = read(page.source)
        for entry in source.aliases + (source.asks if page.language == language else ()):
            place = f"{page.slug}#{entry.section}".removesuffix("#top")
            assert wanted.setdefault(entry.words, place) == place, (
                f"{source.path}:{entry.line}: two sections answer this"
            )
    home = f"{site.PREFIX}{site.Page(language, 'index').path}"
    sections, meant = {}, {}
    for words, right, urls in opened.evaluate(LED, [*wanted, *MESSAGES, *MISTYPED[language]]):
        sections[words] = [url.removeprefix(home).replace("/#", "#").rstrip("/") for url in urls]
        meant[words] = right
    assert {words: sections[words][0] for words in wanted} == wanted
    assert {words: right for words, right in meant.items() if right != words} == MISTYPED[language]
    for message, section in MESSAGES.items():
        assert any(shown.startswith(section) for shown in sections[message]), message


@pytest.mark.parametrize("words", ['say "mask" twice', "🙂 mask", "* [0] mask -1"])
def test_signs_that_are_no_words_break_no_search(tab, words):
    opened = tab.open("foundations/causal/")
    search(opened, words)
    expect(opened.locator(".search__page").first).to_be_visible()


# What the first page of each language says; another says the words alone, and a third has half of one.
SAID = {
    "en": "Then <code>scores.quokka_fill(rows)</code> hops.",
    "it": "La tasca dell’<em>ornitorinco</em> resta vuota.",
    "zh": "请用Kqj、Zw袋鼠<code>quokka</code>跳，再看 causal 的例子。",
}
ALONE = "quokka quokka_fill scores dell ornitorinco Kqj Zw 袋鼠"
HALF = "袋"


@pytest.fixture(scope="module")
def told(built, once):
    """A server of a site that says so."""

    def say_so(folder):
        shutil.copytree(built, folder)
        for language, said in SAID.items():
            for slug, words in (("index", said), ("foundations/causal", ALONE), ("cross/cross-attention", HALF)):
                page = folder / site.Page(language, slug).path / "index.html"
                page.write_text(page.read_text("utf-8").replace("</h1>", f"</h1><p>{words}</p>", 1), encoding="utf-8")
        index(folder, {})

    with site.serve(once("site-with-animals", say_so)) as server:
        yield server


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "quokka_fill"), ("it", "dell'ornitorinco"), ("zh", "袋鼠"), ("zh", "Kqj")],
)
def test_words_that_touch_others_are_found_and_shown_as_they_stand(chromium, told, language, words):
    with open_tab(chromium, told) as tab:
        first, other = (site.Page(language, slug).path for slug in ("index", "foundations/causal"))
        opened = tab.open(first)
        title = opened.locator("h1").evaluate("title => title.firstChild.textContent")
        search(opened, words)
        expect(opened.locator(".search__page")).to_have_count(2)
        assert set(results(opened)) == {first, other}
        shown = opened.locator(".search__page", has_text=title)
        assert shown.locator("strong").text_content() == title
        assert re.sub("<.*?>", "", SAID[language]) in shown.text_content()


def test_results_that_come_late_are_not_shown(tab):
    opened, held = tab.open("foundations/causal/"), []
    opened.route(FRAGMENTS, lambda route: held.append(route))
    opened.keyboard.press("/")
    with opened.expect_request(FRAGMENTS):
        opened.keyboard.insert_text("softmax")
    opened.locator(".search__query").clear()
    opened.wait_for_timeout(200)  # until all are asked for
    for route in held:
        route.continue_()
    opened.wait_for_load_state("networkidle")
    opened.wait_for_timeout(500)
    expect(opened.locator(".search__results a")).to_have_count(0)


MARKED = "() => [...(CSS.highlights.get('found') ?? [])].map(range => range.toString())"
A_MARK_IS_SEEN = """() => [...CSS.highlights.get("found")].some(range => {
  const { top, bottom, height } = range.getBoundingClientRect()
  return height && top >= 0 && bottom <= innerHeight
})"""


@pytest.mark.parametrize(
    ("path", "words", "at", "marks", "fold"),
    [
        ("foundations/causal/", "grouped query attention", "cache/grouped/", {"grouped"}, None),
        ("foundations/causal/", "why is my loss nan", "masks/combining/#empty", {"why", "loss"}, "Why is my loss"),
        ("foundations/causal/", "weights * tril", "foundations/causal/#three-ways", {"tril"}, "tril"),
        ("it/", "sotfmax di una riga mascherata", "", {"softmax", "riga"}, None),
        ("zh/", "掩码 nan", "zh/masks/combining/#empty", {"掩码", "nan"}, None),
        ("foundations/causal/", "LlamaAttention", "cache/grouped/#class", set(), None),
    ],
)
def test_enter_opens_what_answers_best_and_its_words_are_marked_until_a_click_or_escape(
    tab, path, words, at, marks, fold
):
    opened = tab.open(path)
    search(opened, words)
    best = opened.locator(".search__results li:first-child .search__best")
    expect(best).to_have_count(1)
    url = best.evaluate("link => link.href")
    assert url.partition(site.PREFIX)[2].endswith(at)
    opened.keyboard.press("Enter")
    opened.wait_for_url(url)
    expect(opened.locator("dialog.search")).to_be_hidden()
    if not marks:  # the words of an alias are not on the page
        opened.wait_for_function("() => !sessionStorage.length")
        assert opened.evaluate(MARKED) == []
        return
    opened.wait_for_function(f"() => ({MARKED})().length")
    assert marks <= {mark.lower() for mark in opened.evaluate(MARKED)}
    opened.wait_for_function(A_MARK_IS_SEEN)
    if fold:
        expect(opened.locator("article details[open]", has_text=fold).first).to_be_visible()
    opened.keyboard.press("Escape") if fold else opened.locator(".md-header__title").click()
    assert opened.evaluate(MARKED) == []


def enter_early(opened, words):
    """Press Enter while a part of the results is held back; return a list with what lets it come."""
    held = []
    opened.route(FRAGMENTS, lambda route: held.append(route), times=1)
    opened.keyboard.press("/")
    with opened.expect_request(FRAGMENTS):
        opened.keyboard.insert_text(words)
        opened.keyboard.press("Enter")
    return held


def test_enter_waits_for_the_results_of_the_words_that_stand_in_the_field(tab):
    opened = tab.open("foundations/causal/")
    held = enter_early(opened, "rope")
    expect(opened.locator(".search__status")).to_have_text(text("en", "search_searching"))
    held[0].continue_()
    opened.wait_for_url("**/position/rope/**")
    search(opened, "softmax")
    expect(opened.locator(".search__best")).to_have_attribute("href", re.compile("/foundations/softmax/"))
    opened.locator(".search__query").fill("polarity")
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/masks/polarity/**")


def test_enter_opens_nothing_once_the_search_is_closed(tab):
    opened = tab.open("foundations/causal/")
    held = enter_early(opened, "rope")
    opened.keyboard.press("Escape")
    held[0].continue_()
    expect(opened.locator(".search__best")).to_have_count(1)
    opened.wait_for_timeout(300)
    tab.ends_at("/foundations/causal/")


def test_a_long_query_makes_the_search_no_wider(phone):
    opened = phone.open("")
    search(opened, "x" * 500)
    assert opened.locator("dialog.search").evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    opened.keyboard.insert_text("x")
    expect(opened.locator(".search__query")).to_have_value("x" * 500)


def test_a_finger_opens_a_section_and_a_way_of_arrows_another(chromium, server):
    context = chromium.new_context(has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    opened = context.new_page()
    opened.goto(f"{server.url}zh/")
    opened.locator("[data-search-open]").tap()
    opened.keyboard.insert_text("因果掩码")
    section = opened.locator(".search__section").nth(1)
    url = section.evaluate("link => link.href")
    section.tap()
    opened.wait_for_url(url)
    expect(opened.locator(f"[id='{url.partition('#')[2]}']")).to_be_in_viewport()
    context.close()


def test_each_page_is_shown_with_its_chapter_and_lists_come_last(tab):
    opened = tab.open("it/")
    search(opened, "torch.softmax")
    chapters = opened.locator(".search__page small")
    expect(chapters.first).to_have_text("Fondamenti")
    lists = [number for number, name in enumerate(chapters.all_inner_texts()) if not name]
    assert lists == list(range(chapters.count() - len(lists), chapters.count())) != []
    shown = "\n".join(opened.locator(".search__results a").all_inner_texts())
    assert "masked_fill" in shown or "softmax(scores, dim=-1)" in shown
    assert not re.search("[#\u2060\u2063]|&[a-z]+;", shown)


def test_the_search_fetches_nothing_before_it_is_opened_and_only_its_language_then(tab):
    opened = tab.open("zh/foundations/causal/", quiet=True)
    assert [url for url in tab.asked if "pagefind" in url or "find.js" in url] == []
    before = len(tab.server.visits)
    search(opened, "掩码")
    asked = [url for url in tab.asked if "pagefind" in url]
    assert [url for url in asked if "words." in url] == [], "of use for a mistyped word only"
    assert sum(visit.size for visit in tab.server.visits[before:]) < 260_000
    indexes = {match[1] for url in asked if (match := re.search(r"/(?:index|fragment)/([a-z]+)_", url))}
    assert indexes == {"zh"}


def test_words_that_no_page_has_are_named_in_the_language_of_the_page(tab):
    opened = tab.open("zh/")
    search(opened, "龘龘")
    none = opened.locator("dialog.search").get_attribute("data-none")
    expect(opened.locator(".search__status")).to_have_text(none.replace("{query}", "龘龘"))
    opened.locator(".search__query").fill("qqzzxx")  # many words begin with q
    expect(opened.locator(".search__status")).to_have_text(none.replace("{query}", "qqzzxx"))
    expect(opened.locator(".search__results a")).to_have_count(0)
    assert "没有" in none


def test_escape_closes_the_search_and_returns_the_focus_and_it_opens_again_at_once(tab):
    opened = tab.open("foundations/causal/")
    button, dialog = opened.locator("[data-search-open]"), opened.locator("dialog.search")
    button.focus()
    opened.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    expect(opened.locator(".search__query")).to_be_focused()
    opened.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    opened.keyboard.press("/")
    opened.keyboard.press("Escape")
    opened.keyboard.press("/")
    expect(dialog).to_be_visible()


def test_a_search_that_cannot_be_loaded_says_so_and_works_when_it_can(tab):
    tab.page.route("**/pagefind/pagefind.js*", lambda route: route.abort("internetdisconnected"))
    opened = tab.open("it/")
    opened.keyboard.press("/")
    failed = opened.locator("dialog.search").get_attribute("data-failed")
    expect(opened.locator(".search__status")).to_have_text(failed)
    assert tab.faults
    tab.faults.clear()
    tab.page.unroute_all()
    opened.keyboard.insert_text("maschera causale")
    expect(opened.locator(".search__results a").first).to_be_visible()
