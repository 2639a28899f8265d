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


def chapter(slug):
    return slug.rpartition("/")[0]


def addresses(page):
    """The address of a page in every language."""
    return {language: site.SITE_URL + site.Page(language, page.slug).path for language in site.LANGUAGES}


def slugs(page, links):
    """The pages that links of a page lead to, all in its language."""
    home, here = site.SITE_URL + site.Page(page.language, "index").path, site.SITE_URL + page.path
    return [urljoin(here, link["href"]).removeprefix(home).removesuffix("/") or "index" for link in links]


def each_page(built):
    return [(page, site.soup(built, page)) for page in site.PAGES]


# --- ways to other pages --------------------------------------------------------------------------


def test_the_switcher_and_the_head_lead_to_the_same_page_in_every_language(built):
    for page, html in each_page(built):
        everywhere, here = addresses(page), site.SITE_URL + page.path
        switcher = {link["hreflang"]: urljoin(here, link["href"]) for link in html.select(".md-select a")}
        assert switcher == everywhere, page
        assert [link["hreflang"] for link in html.select(".md-select a[aria-current]")] == [page.language], page
        alternates = {link["hreflang"]: link["href"] for link in html.head.select("link[hreflang]")}
        assert alternates == everywhere | {"x-default": everywhere["en"]}, page
        assert html.head.select_one("link[rel=canonical]")["href"] == everywhere[page.language]
        assert html.head.select_one("link[type='text/markdown']")["href"] == "index.md"
    assert "alternate" not in (built / "404.html").read_text("utf-8")


def test_the_menu_lists_every_page_and_opens_the_chapter_of_the_one_that_is_read(built):
    for page, html in each_page(built):
        menu = html.select_one(".md-nav--primary")
        assert slugs(page, menu("a")) == site.SLUGS, page
        assert slugs(page, menu.select("[aria-current=page]")) == [page.slug], page
        near = [slug for slug in site.SLUGS if chapter(slug) and chapter(slug) == chapter(page.slug)]
        assert slugs(page, menu.select("details[open] a")) == near, page


def test_a_page_names_its_chapter_its_place_and_what_it_builds_on(built):
    chapters = (item for item in CONFIG.nav if isinstance(item, dict))
    names = {chapter(pages[0]): name for item in chapters for name, pages in item.items()}
    for page, html in each_page(built):
        label = text(page.language, "builds_on")
        facts = [fact for fact in html.select(".facts li") if str(fact.contents[0]).strip() == label]
        assert [slugs(page, fact("a")) for fact in facts] == [BUILDS_ON[page.slug]] * bool(BUILDS_ON[page.slug]), page
        crumbs = html.select(".place li")
        assert bool(crumbs) == bool(chapter(page.slug)), page
        if crumbs:
            pages = [slug for slug in site.SLUGS if chapter(slug) == chapter(page.slug)]
            name = names[chapter(page.slug)]
            name = (site.LANGUAGES[page.language].nav_translations or {}).get(name, name)
            place = {"number": pages.index(page.slug) + 1, "count": len(pages)}
            assert [crumb.get_text() for crumb in crumbs] == [name, text(page.language, "place").format(**place)], page
            assert slugs(page, crumbs[0]("a")) == pages[:1]
            assert crumbs[1]["aria-current"] == "page"


def test_a_page_of_a_chapter_says_first_how_long_it_takes(built):
    for page, html in each_page(built):
        if chapter(page.slug):
            before, after = text(page.language, "minutes").split("{minutes}")
            said = html.select_one(".facts li").get_text()
            assert 4 < int(said.removeprefix(before).removesuffix(after)) < 20, page


def test_the_page_before_and_the_page_after_are_at_the_top_and_at_the_foot(built):
    for page, html in each_page(built):
        at = site.SLUGS.index(page.slug)
        near = [*site.SLUGS[max(at - 1, 0) : at], *site.SLUGS[at + 1 : at + 2]]
        assert slugs(page, html.select(".pages a")) == near, page
        assert slugs(page, html.select(".place a[rel]")) == (near if at else []), page


def test_the_foot_leads_to_what_every_reader_may_want(built):
    for page, html in each_page(built):
        here, home = site.SITE_URL + page.path, site.SITE_URL + site.Page(page.language, "index").path
        lists = (f"{home}{name}" for name in ("glossary/", "verified/", "llms.txt"))
        links = {urljoin(here, link["href"]) for link in html.footer("a")}
        own = {url for url in links if url.startswith(site.SITE_URL)}
        assert own == {*lists, f"{here}index.md", *addresses(page).values()}, page
        assert html.footer.select_one("a[rel=license]"), page


def test_the_map_says_of_each_page_what_it_builds_on_and_where_it_leads(built):
    for language in site.LANGUAGES:
        page = site.Page(language, "map")
        html, listed = site.soup(built, page), {}
        for step in html.select(".step"):
            [slug] = slugs(page, step.find_all("a", recursive=False))
            listed[slug] = {line.contents[0].strip(): slugs(page, line("a")) for line in step("small")}
        words = text(language, "builds_on"), text(language, "leads_to")
        assert listed == {
            slug: {word: pages for word, pages in zip(words, (BUILDS_ON[slug], LEADS_TO[slug])) if pages}
            for slug in site.SLUGS
            if chapter(slug)
        }
        drawn = {slugs(page, group("a"))[0]: group.path["d"].count("M") for group in html.select(".arcs g")}
        assert drawn == {slug: len(BUILDS_ON[slug]) for slug in listed}


# --- what machines read ---------------------------------------------------------------------------


def test_a_link_to_a_page_is_shown_with_its_title_and_its_description(built):
    for page, html in each_page(built):
        said = {meta["property"]: meta["content"] for meta in html.head.select("meta[property]")}
        name = site.LANGUAGES[page.language].site_name or CONFIG.site_name
        title = name if page.slug == "index" else html.head.title.get_text().removesuffix(f" - {name}")
        assert (said["og:title"], said["og:url"]) == (title, addresses(page)[page.language])
        assert said["og:description"] == html.head.find("meta", {"name": "description"})["content"]


def test_every_page_has_the_same_policy_which_allows_the_scripts_of_the_theme_alone(built):
    policies = [POLICY.findall(path.read_text("utf-8")) for path in built.rglob("*.html")]
    [policy] = policies[0]
    assert all(found == [policy] for found in policies)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe-inline" not in rules["script-src"]
    assert "'unsafe-eval'" not in rules["script-src"]


# --- words ----------------------------------------------------------------------------------------


def words_around(html):
    """What a page says outside its article and its list of languages, on the screen and to a screen reader."""
    outside = set(map(id, html.select("article, head, script, .md-select, .md-nav--secondary, .foot [hreflang]")))
    around = [part for part in html.body.descendants if not outside & {id(part), *map(id, part.parents)}]
    said = {str(part) for part in around if part.name is None}
    for element in (part for part in around if part.name):
        said |= {value for name, value in element.attrs.items() if name in SPOKEN or name.startswith("data-")}
    return {" ".join(words.split()) for words in said if re.search("[A-Za-z]{3}", words)}


def test_around_its_article_a_page_says_nothing_in_english(built):
    first = {chapter(slug): slug for slug in reversed(site.SLUGS)}
    for slug in (*first.values(), "map", "glossary", "verified"):
        english = words_around(site.soup(built, site.Page("en", slug)))
        assert len(english) > 20
        for language in site.LANGUAGES.keys() - {"en"}:
            said = words_around(site.soup(built, site.Page(language, slug)))
            assert said & english <= SAME.get(language, set()), (language, slug)
