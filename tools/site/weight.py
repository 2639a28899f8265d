"""Leave out what no page of ours uses: half of Material's style sheet, and the spans of uncoloured code."""

import re

UNUSED = re.compile(
    r"\.(critic|keys|task-list|tabbed|md-(annotation|author|banner|consent|feedback|footer|meta|pagination|path|post"
    r"|profile|progress|search|social|source|status|tabs|tag|version))"
)
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
EMPTY_BLOCK = re.compile(r"@media[^{}]*\{\}")
SELECTOR = re.compile(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|[^,(])+")
PLAIN_TOKEN = re.compile(r'<span class="(?:n|o|p|w)">([^<]*)</span>')


def trim_styles(css):
    """A style sheet without the rules of the parts of Material that the site does not use."""

    def keep(match):
        selectors = [selector for selector in SELECTOR.findall(match[1]) if not UNUSED.search(selector)]
        return f"{','.join(selectors)}{{{match[2]}}}" if selectors else ""

    return EMPTY_BLOCK.sub("", RULE.sub(keep, css))


def trim_code(body):
    """Code without a span around each name, operator and bracket, which have the colour of the text."""
    return PLAIN_TOKEN.sub(r"\1", body)
