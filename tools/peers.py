"""One page of this site as other generators build it, from npm and PyPI: `nox -s bench -- --peers`.

The peers get the article as Markdown with its formulas in MathML and its picture inline, and nothing else: one page in
one language, each generator as it comes.
"""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.browser import site
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
FURO = {"conf.py": f'project = "{TITLE}"\nextensions = ["myst_parser"]\nhtml_theme = "furo"\n'}


def article(built):
    """The page as Markdown that every generator reads."""
    text = (built / PAGE.path / "index.md").read_text("utf-8")
    drawn = re.search(r"!\[[^]]*\]\([^)]*assets/([\w./-]+)\)", PAGE.source.read_text("utf-8"))[1]
    picture = inline_pictures(f'<img alt="" src="assets/{drawn}">', site.ROOT / "docs/assets")
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
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


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


def npm(folder, *packages):
    run(folder, "npm", "init", "-y")
    run(folder, "npm", "install", "--no-audit", "--no-fund", *packages)


def furo(folder, text):
    write(folder / "source", FURO | {"index.md": text})
    run(folder, sys.executable, "-m", "venv", "env")
    python = next(folder.glob("env/*/python*"))
    run(folder, str(python), "-m", "pip", "install", "furo", "myst-parser")
    run(folder, str(python), "-m", "sphinx", "source", "built")
    (folder / "built/404.html").touch()  # the server asks for it
    return folder / "built"


def build(built, folder):
    """The page by each peer: by its name, the folder that it built."""
    if not shutil.which("npm"):
        sys.exit("the peers need Node 22.12 or later with npm")
    text = article(built)
    peers = {}
    for peer in (starlight, vitepress, furo):
        home = Path(folder, peer.__name__)
        home.mkdir(parents=True)
        peers[peer.__name__] = peer(home, text)
    return peers
