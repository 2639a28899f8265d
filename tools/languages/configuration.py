"""What mkdocs.yml says of languages and pages: it is the only list of either."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.cells.source import read_text


class Loader(yaml.CSafeLoader):
    """Reads what MkDocs adds to YAML: of `!ENV` the value that holds without it, of `!!python/name:` the name."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_object(node.value[-1]))  # [NAME, default]
Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, name, node: name)


@dataclass(frozen=True)
class Configuration:
    """The languages, English first, and the files of the nav in order, such as `masks/padding.md`."""

    languages: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def slugs(self) -> tuple[str, ...]:
        """The pages of the nav by their keys, such as `masks/padding`."""
        return tuple(file.rpartition(".")[0] for file in self.files)


def read(path: Path = Path("mkdocs.yml")) -> Configuration:
    """What mkdocs.yml says."""
    settings = yaml.load(read_text(path), Loader)
    [i18n] = [plugin["i18n"] for plugin in settings["plugins"] if isinstance(plugin, dict) and "i18n" in plugin]
    languages = tuple(language["locale"] for language in i18n["languages"])
    return Configuration(languages, tuple(files_of(settings["nav"])))


def files_of(item: Any) -> Iterator[str]:
    """The files that a nav, or a part of it, names."""
    if isinstance(item, str):
        yield item
    else:
        for part in item.values() if isinstance(item, dict) else item:
            yield from files_of(part)
