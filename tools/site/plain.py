"""The site for machines that read: each page as plain Markdown, and a list of all, as https://llmstxt.org wants it.

A page is made from its notebook, which has its cells, its outputs and its links already.
"""

import html
import re

from tools.markdown import ALL
from tools.notebooks import SVG

QUOTE = re.compile(r"(?:^> \*\*|\A> ).*(?:\n>.*)*", re.M)  # at the start of a text it goes on after a cell
QUOTE_MARK = re.compile(r"^> ?", re.M)
PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
SUMMARY = re.compile(r"<summary>(.*)</summary>")
FOLD = re.compile(r"^<details>\n|\n\n</details>$", re.M)
CODE = re.compile("</?code>")
ANCHOR = re.compile(r'^(#+ .*?) <a id="[\w-]+"></a>$', re.M)
TO_ITSELF = re.compile(r"\]\((?=#)")
NUMBERED = re.compile(r"^\d+\. .*(?:\n {3}.*)*", re.M)
WIDE_SIGN = re.compile(r"[\u3000-\u303f\uff00-\uffef]$")


def page(made, url):
    """The plain Markdown of the notebook of the page at `url`."""
    parts = {"markdown": lambda cell: prose(cell["source"], url), "code": code}
    return "\n\n".join(parts[cell["cell_type"]](cell) for cell in made["cells"]) + "\n"


def prose(text, url):
    """A text without the marks of a notebook: an admonition is a bold line and what it says."""
    text = QUOTE.sub(lambda quote: QUOTE_MARK.sub("", quote[0]), text)
    text = SUMMARY.sub(lambda title: f"**{html.unescape(CODE.sub('`', title[1]))}**", FOLD.sub("", text))
    text = PICTURE.sub(r"[picture: \1]", ANCHOR.sub(r"\1", text))
    return TO_ITSELF.sub(f"]({url}", text)


def code(cell):
    """A cell and its outputs; a figure stands as its name."""
    return "\n\n".join([fenced("python", cell["source"]), *map(shown, cell["outputs"])])


def fenced(language, text):
    return f"```{language}\n{text.rstrip()}\n```"


def shown(output):
    data = output.get("data", {})
    return f"[picture: {data['text/plain']}]" if SVG in data else fenced("text", output["text"])


def behind(page, older, text, english):
    """What readers of a page are told of its sections whose original is newer; it is at `english` if there is one."""
    if page.behind == ALL:
        return text["untranslated"]
    sections = [link(page, f"#{section.id}", section.title) for section in older]
    original = [f"[{text['original']}]({english})"] if english else []
    return spaced(text["behind"]) + " · ".join([*sections, *original])


def below_title(markdown, words):
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n{words}\n{rest}"


def spaced(words):
    """Words that others follow, and the space between them; the last sign of a Chinese sentence has it already."""
    return words if WIDE_SIGN.search(words) else f"{words} "


def counted(markdown, counts):
    """The first page, below each of its promises, which alone are numbered, what was counted for it."""
    counts = iter(counts)
    return NUMBERED.sub(lambda promise: "\n   - ".join([promise[0], *next(counts, [])]), markdown)


def verified(table, text):
    """What the records say of each page with cells and of all, and what is said of the cells that need a device."""
    rows = [
        [text["page"], *table.devices],
        ["---"] * (1 + len(table.devices)),
        *([link(page), *(share(badge, text) for badge in badges)] for page, badges in table.rows),
        [text["total"], *(share(badge, text) for badge in table.totals)],
    ]
    parts = ["".join(map(table_row, rows)), "".join(waiting(*one) for one in table.waiting)]
    return "\n".join(filter(None, ["" if "CUDA" in table.devices else f"{text['no_gpu']}\n", *parts]))


def share(badge, text):
    """How many cells count; of a page of which any does, with which torch, when and where they ran."""
    counts = text["share"].format(**badge)
    if badge["verified"] and "torch" in badge:
        return f"{counts} · torch {badge['torch']} · {badge['date']} · {badge['name']}"
    return counts


def table_row(cells):
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


def waiting(page, cell):
    return f"- {link(page, f'#cell-{cell.name}')} · `{cell.name}` · {page.ran_on[cell.name]}\n"


def glossary(entries, pages):
    """The terms of the glossary, each with its other names, its sentence, and the section that introduces it."""
    pages = {page.slug: page for page in pages}
    return "".join(
        f"- **{entry.name}**{others(entry.names)}: {spaced(entry.says)}{introduced(entry.where, pages)}\n"
        for entry in entries
    )


def introduced(where, pages):
    slug, mark, section = where.partition("#")
    return link(pages[slug], "" if section == "top" else mark + section)


def others(names):
    """The names of a term by language; one that two languages share stands once."""
    return f" ({', '.join(dict.fromkeys(names.values()))})" if names else ""


def symbols(found):
    """The names of torch, each with the cells that use it."""
    return "\n" + "".join(f"- `{symbol.name}`: {', '.join(places(symbol.uses))}\n" for symbol in found)


def places(uses):
    for page, cells in uses:
        yield from (link(page, f"#cell-{cell}", f"{page.title}, {cell}") for cell in cells)


def curriculum(rows, builds_on):
    """The pages of each chapter, with the words `builds_on` before those that they build on."""
    return "".join(line(row, builds_on) if row.page else f"\n## {html.unescape(row.title)}\n\n" for row in rows)


def line(row, builds_on):
    bases = " · ".join(map(link, row.bases))
    return f"- {link(row.page)}{f' · {spaced(builds_on)}{bases}' if bases else ''}\n"


def link(page, place="", title=""):
    """A link to a page, or to a place on it, with the title of the page or another."""
    return f"[{html.unescape(title or page.title)}]({page.canonical_url.replace(' ', '%20')}{place})"


def llms(name, description, nav, loose):
    """The list of all pages by chapter; those outside the chapters come first, below the title `loose`."""
    chapters = {loose: [item for item in nav if not item.children]}
    chapters |= {html.unescape(item.title): list(pages(item)) for item in nav if item.children}
    lists = [f"## {title}\n\n{''.join(map(listed, found))}" for title, found in chapters.items()]
    return "\n".join([f"# {name}\n\n> {description}\n", *lists])


def pages(item):
    """The pages of a part of the nav, in order."""
    if not item.children:
        yield item
    for child in item.children or []:
        yield from pages(child)


def listed(page):
    return f"- {link(page, 'index.md')}: {html.unescape(page.meta['description'])}\n"
