"""Leave out what no page of the site uses: files of Material, and rules of its style sheets."""

import re
import shutil

# What a selector asks of an element. `:not(...)` and its like ask for none of the names in them.
CLASS = re.compile(r"\.(-?[a-zA-Z_][\w-]*)")
ATTRIBUTE = re.compile(r"\[(dir|data-md-[\w-]+)=[\"']?([^\"'\]]+)")
FUNCTION = re.compile(r":(?:has|is|not|where)\((?:[^()]|\([^()]*\))*\)")
SELECTOR = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|[^,(])+")
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
EMPTY_BLOCK = re.compile(r"@media[^{}]*\{\}")
VARIABLE = re.compile(r"(?<=[{;])(--[\w-]+):((?:\"[^\"]*\"|'[^']*'|[^;{}\"'])*);?")
USED_VARIABLE = re.compile(r"var\((--[\w-]+)")

UNUSED = (
    "assets/images",
    "assets/javascripts",
    "assets/stylesheets/*.map",
    "assets/stylesheets/palette.*",
    "sitemap.xml.gz",
)
CLASSES = re.compile(r'\bclass="([^"]*)"')
ATTRIBUTES = re.compile(r'\b(dir|data-md-[\w-]+)="([^"]*)"')
WORD = re.compile(r"[\w-]+")


def names(pages, scripts):
    """The classes and attributes that the pages have, and the words of the scripts, which may set them."""
    found = {word for script in scripts for word in WORD.findall(script)}
    for page in pages:
        found.update(*(classes.split() for classes in CLASSES.findall(page)), ATTRIBUTES.findall(page))
    return found


def trim_styles(css, used, others=""):
    """A style sheet without rules that ask for a name not in `used`, and variables that it and `others` never read."""

    def asks(selector):
        bare = FUNCTION.sub("", selector)
        return {*CLASS.findall(bare), *ATTRIBUTE.findall(bare)}

    def keep(match):
        selectors = [selector for selector in SELECTOR.findall(match[1]) if asks(selector) <= used]
        return f"{','.join(selectors)}{{{match[2]}}}" if selectors else ""

    css = EMPTY_BLOCK.sub("", RULE.sub(keep, css))
    read = set(USED_VARIABLE.findall(css + others))
    return VARIABLE.sub(lambda match: match[0] if match[1] in read else "", css)


def trim(site):
    """Take out of a built site what no page asks for."""

    def texts(pattern):
        return [path.read_text("utf-8") for path in sorted(site.glob(pattern))]

    for path in {path for pattern in UNUSED for path in site.glob(pattern)}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    used = names(texts("**/*.html"), texts("assets/**/*.js"))
    sheets = sorted(site.glob("assets/stylesheets/*.css"))
    own = "".join(texts("assets/*.css"))
    for sheet in sheets:
        others = own + "".join(other.read_text("utf-8") for other in sheets if other != sheet)
        sheet.write_text(trim_styles(sheet.read_text("utf-8"), used, others), encoding="utf-8")
