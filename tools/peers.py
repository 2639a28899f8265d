"""What other generators make of this site, from npm and PyPI: `nox -s bench -- --peers`.

For the bytes of a visit the peers get an article as Markdown with its formulas in MathML and its picture inline, and
nothing else: one page in one language, each generator as it comes. For the time of a build Zensical, which reads the
same Markdown, gets all pages in all languages; each of the two has an environment of its own.
"""

import html
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.browser import site
from tests.configuration import LANGUAGES
from tools.site.body import inline_pictures
from tools.site.mathematics import CONVERTER

PAGE = site.Page("en", "masks/causal")
TITLE = "Attention by Example"
FENCE = re.compile(r"(^```.*?^```$|`[^`]*`)", re.S | re.M)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.S)
PICTURE = re.compile(r"^\[picture: (.*)\]$", re.M)

STARLIGHT = {
    "astro.config.mjs": f"""
import {{ defineConfig }} from "astro/config"
import starlight from "@astrojs/starlight"
export default defineConfig({{ base: "/attention", integrations: [starlight({{ title: "{TITLE}" }})] }})
""",
    "src/content.config.ts": """
import { defineCollection } from "astro:content"
import { docsLoader } from "@astrojs/starlight/loaders"
import { docsSchema } from "@astrojs/starlight/schema"
export const collections = { docs: defineCollection({ loader: docsLoader(), schema: docsSchema() }) }
""",
}
VITEPRESS = {".vitepress/config.mjs": f'export default {{ base: "/attention/", title: "{TITLE}" }}'}
DOCUSAURUS = {
    "docusaurus.config.mjs": f"""
const docs = {{ routeBasePath: "/" }}
export default {{
  title: "{TITLE}",
  url: "https://example.org",
  baseUrl: "/attention/",
  markdown: {{ format: "md" }},
  presets: [["classic", {{ docs, blog: false, pages: false }}]],
}}
"""
}
MATERIAL = {
    "mkdocs.yml": f"""
site_name: {TITLE}
theme: {{name: material, font: false}}
markdown_extensions: [pymdownx.highlight, pymdownx.superfences]
"""
}
FURO = {"conf.py": f'project = "{TITLE}"\nextensions = ["myst_parser"]\nhtml_theme = "furo"\n'}
ZENSICAL = f"""\
site_name: {TITLE}
{{nav}}
markdown_extensions:
  - admonition
  - attr_list
  - toc: {{{{permalink: true}}}}
  - pymdownx.arithmatex: {{{{generic: true}}}}
  - pymdownx.details
  - pymdownx.highlight
  - pymdownx.snippets: {{{{base_path: [snippets], check_paths: true}}}}
  - pymdownx.superfences
"""
TEMPLATE = re.compile(r"^template: .*\n", re.M)


def article(built):
    """The page as Markdown that every generator reads."""
    text = (built / PAGE.path / "index.md").read_text("utf-8")
    drawn = re.search(r"!\[[^]]*\]\([^)]*assets/([\w./-]+)\)", PAGE.source.read_text("utf-8"))[1]
    picture = inline_pictures(f'<img alt="" src="assets/{drawn}">', site.ROOT / "docs/assets", {})
    text = PICTURE.sub(lambda match: picture.replace('""', f'"{html.escape(match[1])}"', 1).replace("\n", ""), text)
    parts = FENCE.split(text)
    parts[::2] = [FORMULA.sub(formula, part) for part in parts[::2]]
    return "".join(parts)


def formula(match):
    return CONVERTER.convert_with_local_state(match[1] or match[2], displaystyle=bool(match[1])).replace("\n", "")


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def starlight(folder, text):
    title, _, rest = text.partition("\n")
    write(folder, STARLIGHT | {"src/content/docs/index.md": f"---\ntitle: {title.lstrip('# ')}\n---\n{rest}"})
    npm(folder, "astro", "@astrojs/starlight")
    run(folder, "npx", "astro", "build")
    return folder / "dist"


def vitepress(folder, text):
    write(folder, VITEPRESS | {"index.md": text})
    npm(folder, "vitepress")
    run(folder, "npx", "vitepress", "build")
    return folder / ".vitepress/dist"


def docusaurus(folder, text):
    write(folder, DOCUSAURUS | {"docs/index.md": text})
    npm(folder, "@docusaurus/core", "@docusaurus/preset-classic", "react", "react-dom")
    run(folder, "npx", "docusaurus", "build")
    return folder / "build"


def npm(folder, *packages):
    write(folder, {"package.json": "{}"})
    run(folder, "npm", "install", "--no-audit", "--no-fund", *packages)


def furo(folder, text):
    write(folder / "source", FURO | {"index.md": text})
    run(folder, python_with(folder, "furo", "myst-parser"), "-m", "sphinx", "source", "built")
    (folder / "built/404.html").touch()  # the server asks for it
    return folder / "built"


def material(folder, text):
    write(folder, MATERIAL | {"docs/index.md": text})
    run(folder, python_with(folder, "mkdocs-material"), "-m", "mkdocs", "build")
    return folder / "site"


def python_with(folder, *packages):
    """The Python of a new environment that has some packages."""
    run(folder, sys.executable, "-m", "venv", "env")
    python = str(next(path for path in folder.glob("env/*/python*") if path.is_file()))
    run(folder, python, "-m", "pip", "install", *packages)
    return python


def own(folder):
    """A function that builds this site with what its build needs, and nothing else, installed."""
    groups = tomllib.loads((site.ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    folder.mkdir(parents=True)
    python = python_with(folder, *groups["docs"], "-c", str(site.ROOT.resolve() / "constraints.txt"))
    return lambda: run(site.ROOT, python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site"))


def zensical(folder):
    """A function that builds this site with Zensical: each language by itself, as it comes, without our hooks."""
    settings = (site.ROOT / "mkdocs.yml").read_text("utf-8")
    nav = re.search(r"^nav:\n(?: .*\n)+", settings, re.M)[0].replace(".ipynb", ".md")
    for language in LANGUAGES:
        shutil.copytree(site.ROOT / "docs" / language, folder / language / "docs")
        shutil.copytree(site.ROOT / "snippets", folder / language / "snippets")
        for page in folder.glob(f"{language}/docs/**/*.md"):
            page.write_text(TEMPLATE.sub("", page.read_text("utf-8")), encoding="utf-8")
        write(folder / language, {"mkdocs.yml": ZENSICAL.format(nav=nav)})
    python = python_with(folder, "zensical")

    def built():
        for language in LANGUAGES:
            run(folder / language, python, "-m", "zensical", "build", "--clean")

    return built


def build(built, folder):
    """The page by each peer: by its name, the folder that it built."""
    if not shutil.which("npm"):
        sys.exit("the peers need Node 22.12 or later with npm")
    text = article(built)
    peers = {}
    for peer in (starlight, vitepress, docusaurus, material, furo):
        home = Path(folder, peer.__name__)
        home.mkdir(parents=True)
        peers[peer.__name__] = peer(home, text)
    return peers
