"""The site for machines that read: each page as plain Markdown, and a list of all, as https://llmstxt.org wants it.

A page is made from its notebook, which has its cells, its outputs and its links already.
"""

import html
import re

from tools.notebooks import ANCHOR, is_figure, svg, text_of

QUOTE = re.compile(r"(?:^> \*\*|\A> ).*(?:\n>.*)*", re.M)  # at the start of a text it goes on after a cell
QUOTE_MARK = re.compile(r"^> ?", re.M)
PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
SUMMARY = re.compile(r"<summary>(.*)</summary>")
FOLD = re.compile(r"^<details>\n|\n\n</details>$", re.M)
CODE = re.compile("</?code>")
NAME = re.compile(r'aria-label="([^"]*)"')
TO_ITSELF = re.compile(r"\]\((?=#)")


def page(made, url):
    """The plain Markdown of the notebook of the page at `url`."""
    parts = {"markdown": lambda cell: prose(text_of(cell["source"]), url), "code": code}
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
    return f"```{language}\n{text_of(text).rstrip()}\n```"


def shown(output):
    if not is_figure(output):
        return fenced("text", output["text"])
    name = NAME.search(svg(output))
    return f"[picture: {html.unescape(name[1])}]" if name else "[picture]"


def glossary(entries):
    """The terms of the glossary, each with its other names and its sentence."""
    return "".join(f"- **{entry.name}**{others(entry.names)}: {entry.says}\n" for entry in entries)


def others(names):
    """The names of a term by language; one that two languages share stands once."""
    return f" ({', '.join(dict.fromkeys(names.values()))})" if names else ""


def symbols(found):
    """The names of torch, each with the cells that use it."""
    return "\n" + "".join(f"- `{symbol.name}`: {', '.join(places(symbol.uses))}\n" for symbol in found)


def places(uses):
    for page, cells in uses:
        yield from (link(page, f"#cell-{cell}", f", {cell}") for cell in cells)


def curriculum(rows, builds_on):
    """The pages of each chapter, with the words `builds_on` before those that they build on."""
    return "".join(line(row, builds_on) if row.page else f"\n## {row.title}\n\n" for row in rows)


def line(row, builds_on):
    bases = ", ".join(map(link, row.bases))
    return f"- {link(row.page)}{f'. {builds_on} {bases}' if bases else ''}\n"


def link(page, place="", rest=""):
    """A link to a page, or to a place on it whose name is the rest of its title."""
    return f"[{html.unescape(page.title)}{rest}]({page.canonical_url.replace(' ', '%20')}{place})"


def llms(name, description, nav, loose):
    """The list of all pages by chapter; those outside the chapters come first, below the title `loose`."""
    chapters = {loose: [item for item in nav if not item.children]}
    chapters |= {item.title: list(pages(item)) for item in nav if item.children}
    lists = [f"## {title}\n\n{''.join(map(listed, found))}" for title, found in chapters.items()]
    return "\n".join([f"# {name}\n\n> {description}\n", *lists])


def pages(item):
    """The pages of a part of the nav, in order."""
    if not item.children:
        yield item
    for child in item.children or []:
        yield from pages(child)


def listed(page):
    description = html.unescape(page.meta.get("description", ""))
    return f"- {link(page, 'index.md')}{f': {description}' if description else ''}\n"
