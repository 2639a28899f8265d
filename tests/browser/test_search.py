"""The search finds what the pages say, in the reader's language, and costs nothing before it is opened."""

import csv
import re

import pytest
from playwright.sync_api import expect

from tests.browser import site
from tests.configuration import text
from tools.languages.markdown import read

FRAGMENTS = "**/pagefind/fragment/**"  # what the sections that are found say

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


# What answers first: a page, if its name is asked for, or else a section.
SOUGHT = {
    "en": {
        "causal mask": "foundations/causal",
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
    "it": {"True significa mascherato?": "masks/polarity", "maschera causale": "foundations/causal"},
    "zh": {"分组查询": "cache/grouped", "因果掩码": "foundations/causal"},
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


@pytest.mark.parametrize("language", SOUGHT)
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


with (site.ROOT / "tests/browser/typed.csv").open(encoding="utf-8", newline="") as table:
    TYPED = list(csv.DictReader(table))


@pytest.mark.parametrize("language", site.LANGUAGES)
def test_what_a_reader_types_and_no_page_says_opens_the_section_that_answers(tab, language):
    rows = {row["typed"]: row["opens"] for row in TYPED if row["language"] == language}
    pages = [read(site.page_file(tongue, slug)) for slug in site.SLUGS for tongue in {"en", language}]
    said = {entry.words.casefold() for page in pages for entry in (*page.asks, *page.aliases)}
    assert [words for words in rows if words.casefold() in said] == [], "a row that its own alias answers tests nothing"
    opened = tab.open(site.Page(language, "foundations/causal").path)
    home = f"{site.PREFIX}{site.Page(language, 'index').path}"
    first = {words: urls[0].removeprefix(home) for words, _, urls in opened.evaluate(LED, [*rows])}
    assert {words: url.replace("/#", "#").rstrip("/") for words, url in first.items()} == rows


MARKED = "() => [...(CSS.highlights.get('found') ?? [])].map(range => range.toString())"
# What was fetched before anything was shown: names, and bytes on the wire.
WATCH = """() => new MutationObserver(() => {
  globalThis.fetched ??= performance.getEntriesByType("resource").map(one => [one.name, one.encodedBodySize])
}).observe(document.querySelector(".search__results"), { childList: true })"""
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
    ],
)
def test_enter_opens_what_answers_best_and_marks_its_words_until_a_click_or_escape(tab, path, words, at, marks, fold):
    opened = tab.open(path)
    search(opened, words)
    best = opened.locator(".search__results li:first-child .search__best")
    expect(best).to_have_count(1)
    url = best.evaluate("link => link.href")
    assert url.partition(site.PREFIX)[2].endswith(at)
    opened.keyboard.press("Enter")
    opened.wait_for_url(url)
    expect(opened.locator("dialog.search")).to_be_hidden()
    opened.wait_for_function(f"() => ({MARKED})().length")
    assert marks <= {mark.lower() for mark in opened.evaluate(MARKED)}
    opened.wait_for_function(A_MARK_IS_SEEN)
    if fold:
        expect(opened.locator("article details[open]", has_text=fold).first).to_be_visible()
    opened.keyboard.press("Escape") if fold else opened.locator(".md-header__title").click()
    assert opened.evaluate(MARKED) == []


# Of text and background of a found word: the contrast, and whether the background is that of the theme.
LEGIBLE = """() => {
  const found = getComputedStyle(document.querySelector("article p"), "::highlight(found)")
  const themed = getComputedStyle(document.querySelector(".search mark")).backgroundColor
  const light = colour => colour.match(/[0-9]+/g).map(part => part / 255)
    .reduce((sum, part, at) => sum + [.2126, .7152, .0722][at] * ((part + .055) / 1.055) ** 2.4, .05)
  const [low, high] = [light(found.color), light(found.backgroundColor)].sort((a, b) => a - b)
  return [high / low, found.backgroundColor === themed]
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_pasted_message_opens_the_row_that_explains_it_in_the_theme_colours(tab, scheme):
    tab.page.emulate_media(color_scheme=scheme)
    opened = tab.open("foundations/causal/")
    search(opened, "AssertionError: embed_dim must be divisible by num_heads")
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/foundations/shapes/#errors")
    expect(opened.locator("tr", has_text="embed_dim must be divisible")).to_be_in_viewport(ratio=1)
    search(opened, "embed_dim")  # the results show how the theme marks a word
    contrast, is_themed = opened.evaluate(LEGIBLE)
    assert contrast >= 4.5
    assert is_themed


def test_enter_waits_for_the_results_of_the_words_that_stand_in_the_field(tab):
    opened, held = tab.open("foundations/causal/"), []
    opened.route(FRAGMENTS, lambda route: held.append(route), times=1)
    opened.keyboard.press("/")
    with opened.expect_request(FRAGMENTS):
        opened.keyboard.insert_text("rope")
        opened.keyboard.press("Enter")
    expect(opened.locator(".search__status")).to_have_text(text("en", "search_searching"))
    held[0].continue_()
    opened.wait_for_url("**/position/rope/**")


def test_a_finger_opens_a_section(phone):
    opened = phone.open("zh/")
    opened.locator("[data-search-open]").tap()
    opened.keyboard.insert_text("因果掩码")
    section = opened.locator(".search__section[href$='#causal']").first  # where the words stand beside the heading
    url = section.evaluate("link => link.href")
    section.tap()
    opened.wait_for_url(url)
    expect(opened.locator(f"[id='{url.partition('#')[2]}']")).to_be_in_viewport()


def test_a_page_is_shown_with_its_chapter_its_words_as_they_stand_and_lists_last(tab):
    opened = tab.open("it/")
    search(opened, "masked_fill")
    said = opened.locator(".search__status").inner_text()
    chapters = opened.locator(".search__page small")
    expect(chapters).to_have_count(int(re.search(r"\d+", said)[0]))
    expect(chapters.first).to_have_text("Fondamenti")
    lists = [number for number, name in enumerate(chapters.all_inner_texts()) if not name]
    assert lists == list(range(chapters.count() - len(lists), chapters.count())) != []
    words = "\n".join(opened.locator(".search__results a").all_inner_texts())
    assert "scores.masked_fill(" in words  # which Pagefind reads as two words
    assert not re.search("[#\u2060\u2063]|&[a-z]+;", words)


def test_the_search_fetches_nothing_until_opened_then_what_its_language_needs(newcomer):
    opened, held = newcomer.open("zh/foundations/causal/", quiet=True), []
    assert [url for url in newcomer.asked if "pagefind" in url or "find.js" in url] == []
    opened.evaluate(WATCH)
    opened.route("**/assets/find.js", lambda route: held.append(route), times=1)
    with opened.expect_request("**/pagefind/*.pf_meta"):
        opened.keyboard.press("/")
    assert any("wasm.zh" in url for url in newcomer.asked)
    held[0].continue_()
    opened.keyboard.insert_text("掩码")
    expect(opened.locator(".search__results")).to_have_attribute("data-words", "掩码")
    first = {url: size for url, size in opened.evaluate("fetched") if re.search("pagefind|find.js", url)}
    assert len(first) <= 16
    assert sum(first.values()) < 185_000
    asked = [url for url in newcomer.asked if "pagefind" in url]
    assert sum("wasm" in url for url in asked) == 1
    keys = opened.context.new_cdp_session(opened)
    keys.send("Input.imeSetComposition", {"text": "yan'ma", "selectionStart": 6, "selectionEnd": 6})
    opened.wait_for_timeout(300)
    chunks = [url for url in newcomer.asked if "pf_index" in url]
    assert chunks == [url for url in asked if "pf_index" in url], "what an input method has not made words of yet"
    keys.send("Input.insertText", {"text": "键"})
    expect(opened.locator(".search__results")).to_have_attribute("data-words", "掩码键")
    assert [url for url in asked if "words." in url] == [], "of use for a mistyped word only"
    indexes = {match[1] for url in asked if (match := re.search(r"/(?:index|fragment)/([a-z]+)_", url))}
    assert indexes == {"zh"}


def test_words_that_no_page_has_are_named_in_the_language_of_the_page(tab):
    opened = tab.open("zh/")
    search(opened, "龘龘")
    none = opened.locator("dialog.search").get_attribute("data-none")
    expect(opened.locator(".search__status")).to_have_text(none.replace("{query}", "龘龘"))
    expect(opened.locator(".search__results a")).to_have_count(0)
    assert "没有" in none


def test_a_search_that_cannot_be_loaded_says_so_and_works_when_it_can(tab):
    tab.page.route("**/pagefind/pagefind.js*", lambda route: route.abort("internetdisconnected"))
    opened = tab.open("it/")
    opened.keyboard.press("/")
    failed = opened.locator("dialog.search").get_attribute("data-failed")
    expect(opened.locator(".search__status")).to_have_text(failed)
    assert tab.faults
    tab.page.unroute_all()
    opened.keyboard.insert_text("maschera causale")
    expect(opened.locator(".search__results a").first).to_be_visible()
    tab.faults[:] = [fault for fault in tab.faults if "ERR_INTERNET_DISCONNECTED" not in fault]  # one may come late
