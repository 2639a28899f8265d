"""The HTML of a page as a tree: it is parsed once, small functions change it, and it is written once."""

from collections.abc import Callable, Collection, Iterator, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

Node = LexborNode
GAP = "\0"  # no page has one


def parse(html: str) -> Node:
    """An element that holds a part of a page."""
    return holding(LexborHTMLParser(""), html)


def written(holder: Node) -> str:
    """What an element holds, as HTML; a space without a break is itself, which is shorter than its name."""
    return (holder.inner_html or "").replace("&nbsp;", "\u00a0")


def holding(tree: LexborHTMLParser, html: str) -> Node:
    """A new element of a tree, which holds HTML and stands nowhere yet."""
    holder = tree.create_node("div")
    holder.inner_html = html
    return holder


def put(html: str, place: Callable[..., None], node: Node) -> None:
    """Put HTML where a method of a node places an element."""
    holder = holding(node.parser, html)
    place(node, holder, move=True)
    holder.unwrap(delete_empty=True)


def replace(node: Node, html: str) -> None:
    """Put HTML where a node stands."""
    put(html, Node.replace_with, node)


def texts(node: Node, without: Collection[str] = ()) -> Iterator[Node]:
    """The texts that an element holds, in order, but for those inside elements of some kinds."""
    for child in node.iter(include_text=True):
        if child.is_text_node:
            yield child
        elif child.tag not in without:
            yield from texts(child, without)


def change_texts(nodes: Sequence[Node], change: Callable[[str], str], put: Callable[[Node, str], None]) -> None:
    """Let `put` replace each text that `change` makes another; it gets all of them as one, a `GAP` between two."""
    before = [node.text_content or "" for node in nodes]
    for node, old, new in zip(nodes, before, change(GAP.join(before)).split(GAP), strict=True):
        if new != old:
            put(node, new)
