"""What stands in every page in every language, in its head and around its article: ways to other pages, and facts."""

import re
from urllib.parse import urljoin

from tests.browser import site
from tests.configuration import CONFIG, text
from tools.languages.markdown import read

BUILDS_ON = {slug: read(site.Page("en", slug).source).front.get("builds_on", []) for slug in site.SLUGS}
LEADS_TO = {slug: [other for other in site.SLUGS if slug in BUILDS_ON[other]] for slug in site.SLUGS}
POLICY = re.compile('<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="([^"]+)">')
SAME = {"it": {"Cross-attention"}}  # a title that Italian keeps
SPOKEN = ("alt", "aria-label", "placeholder", "title")


PARTS = [part for item in CONFIG.nav if isinstance(item, dict) for part in item.items()]
CHAPTER = {file.rpartition(".")[0]: name for name, files in PARTS if isinstance(files, list) for file in files}


def chapter(slug):
    return CHAPTER.get(slug, "")


def addresses(page):
    """The address of a page in every language."""
    return {language: site.SITE_URL + site.Page(language, page.slug).path for language in site.LANGUAGES}


def hrefs(page, links, key="href"):
    """The whole addresses of links of a page, by one of their attributes."""
    here = site.SITE_URL + page.path
    return {link.attributes[key]: urljoin(here, link.attributes["href"]) for link in links}


def slugs(page, links):
    """The pages that links of a page lead to, all in its language."""
    home = site.SITE_URL + site.Page(page.language, "index").path
    return [url.removeprefix(home).removesuffix("/") or "index" for url in hrefs(page, links).values()]


def each_page(built):
    return [(page, site.html(built, page)) for page in site.PAGES]


# --- ways to other pages --------------------------------------------------------------------------


def test_the_switcher_and_the_head_lead_to_the_same_page_in_every_language(built):
    for page, html in each_page(built):
        everywhere = addresses(page)
        assert hrefs(page, html.css(".md-select a"), "hreflang") == everywhere, page
        assert [*hrefs(page, html.css(".md-select a[aria-current]"), "hreflang")] == [page.language], page
        alternates = hrefs(page, html.css("head link[hreflang]"), "hreflang")
        assert alternates == everywhere | {"x-default": everywhere["en"]}, page
        others = hrefs(page, html.css("link:is([rel=canonical], [type='text/markdown'])"))
        assert [*others] == [everywhere[page.language], "index.md"], page
    assert "alternate" not in (built / "404.html").read_text("utf-8")


def test_the_menu_lists_every_page_and_opens_the_chapter_of_the_one_that_is_read(built):
    for page, html in each_page(built):
        [menu] = html.css(".md-nav--primary")
        assert slugs(page, menu.css("a")) == site.SLUGS, page
        assert slugs(page, menu.css("[aria-current=page]")) == [page.slug], page
        near = [slug for slug in site.SLUGS if chapter(slug) and chapter(slug) == chapter(page.slug)]
        assert slugs(page, menu.css("details[open] a")) == near, page


def test_a_page_names_its_chapter_its_place_its_minutes_and_what_it_builds_on(built):
    for page, html in each_page(built):
        label = text(page.language, "builds_on")
        facts = [fact for fact in html.css(".facts li") if fact.text().strip().startswith(label)]
        assert [slugs(page, fact.css("a")) for fact in facts] == [BUILDS_ON[page.slug]] * bool(BUILDS_ON[page.slug]), (
            page
        )
        crumbs = html.css(".place li")
        assert bool(crumbs) == bool(chapter(page.slug)), page
        if crumbs:
            pages = [slug for slug in site.SLUGS if chapter(slug) == chapter(page.slug)]
            name = chapter(page.slug)
            name = (site.LANGUAGES[page.language].nav_translations or {}).get(name, name)
            place = {"number": pages.index(page.slug) + 1, "count": len(pages)}
            assert [crumb.text() for crumb in crumbs] == [name, text(page.language, "place").format(**place)], page
            assert slugs(page, crumbs[0].css("a")) == pages[:1]
            before, after = text(page.language, "minutes").split("{minutes}")
            assert 4 < int(html.css_first(".facts li").text().removeprefix(before).removesuffix(after)) < 20, page


def test_the_page_before_and_the_page_after_are_at_the_top_and_at_the_foot(built):
    for page, html in each_page(built):
        at = site.SLUGS.index(page.slug)
        near = [*site.SLUGS[max(at - 1, 0) : at], *site.SLUGS[at + 1 : at + 2]]
        assert slugs(page, html.css(".pages a")) == near, page
        assert slugs(page, html.css(".place a[rel]")) == (near if at else []), page


def test_the_foot_leads_to_what_every_reader_may_want(built):
    for page, html in each_page(built):
        own = {url for url in hrefs(page, html.css("footer a")).values() if url.startswith(site.SITE_URL)}
        home = addresses(site.Page(page.language, "index"))[page.language]
        lists = (f"{home}{name}" for name in ("glossary/", "verified/", "llms.txt"))
        assert own == {*lists, f"{site.SITE_URL}{page.path}index.md", *addresses(page).values()}, page
        assert html.css("footer a[rel=license]"), page


def test_the_map_says_of_each_page_what_it_builds_on_and_where_it_leads(built):
    for language in site.LANGUAGES:
        page = site.Page(language, "map")
        words, listed = (text(language, "builds_on"), text(language, "leads_to")), {}
        for step in site.html(built, page).css(".step"):
            [slug] = slugs(page, step.css(".step > a"))
            listed[slug] = {line.child.text().strip(): slugs(page, line.css("a")) for line in step.css("small")}
        assert listed == {
            slug: {word: pages for word, pages in zip(words, (BUILDS_ON[slug], LEADS_TO[slug])) if pages}
            for slug in site.SLUGS
            if chapter(slug)
        }


# --- what machines read ---------------------------------------------------------------------------


def test_a_link_to_a_page_is_shown_with_its_title_and_its_description(built):
    for page, html in each_page(built):
        told = {meta.attributes["property"]: meta.attributes["content"] for meta in html.css("head meta[property]")}
        name = site.LANGUAGES[page.language].site_name or CONFIG.site_name
        title = name if page.slug == "index" else html.css_first("title").text().removesuffix(f" - {name}")
        assert (told["og:title"], told["og:url"]) == (title, addresses(page)[page.language])
        assert told["og:description"] == html.css_first("meta[name=description]").attributes["content"]


def test_every_page_has_the_same_policy_which_allows_the_scripts_of_the_theme_alone(built):
    policies = [POLICY.findall(path.read_text("utf-8")) for path in built.rglob("*.html")]
    [policy] = policies[0]
    assert all(found == [policy] for found in policies)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe-inline" not in rules["script-src"]
    assert "'unsafe-eval'" not in rules["script-src"]


# --- words ----------------------------------------------------------------------------------------


AROUND = "body *:not(article *, article, script, .md-select *, .md-select, .md-nav--secondary *, .foot [hreflang])"


def words_around(html):
    """What a page says outside its article and its list of languages, on the screen and to a screen reader."""
    words = set()
    for element in html.css(AROUND):
        words.add(element.text(deep=False))
        words |= {value for name, value in element.attributes.items() if name in SPOKEN or name.startswith("data-")}
    return {" ".join(said.split()) for said in words if re.search("[A-Za-z]{3}", said or "")}


def test_around_its_article_a_page_says_nothing_in_english(built):
    first = {chapter(slug): slug for slug in reversed(site.SLUGS)}
    for slug in (*first.values(), "map", "glossary", "verified"):
        english = words_around(site.html(built, site.Page("en", slug)))
        assert len(english) > 20
        for language in site.LANGUAGES.keys() - {"en"}:
            same = words_around(site.html(built, site.Page(language, slug))) & english
            assert same <= SAME.get(language, set()), (language, slug)
