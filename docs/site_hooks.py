"""Hooks of mkdocs: the README is the home page, and files outside ``docs`` that pages link to become pages.

The pages in ``docs`` are written so that they can be read in the repository too, where ``README.md`` is the index and
links may leave ``docs``. On the site the README is the home page, and each file that a page links to, such as
``examples/simple_config.py``, is a page under ``source`` that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data):<code>~?([\w.]+)</code>")
PAGES = {"README.md": "index.md", "docs/README.md": "index.md"}
WHOLE = ("CONTRIBUTING.md", "CHANGELOG.md")
LANGUAGES = {".py": "python", ".json": "json", ".md": "markdown"}


def slug(title: str, separator: str) -> str:
    """Return the anchor of a heading as GitHub makes it, so that links work there and here."""
    return re.sub(r"[^\w -]", "", re.sub(r"<[^>]*>", "", title).lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def place(source: str) -> str:
    """Return where a file of the repository is on the site, relative to ``docs``."""
    if source in PAGES:
        return PAGES[source]
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    return source if source in WHOLE else f"source/{source.removesuffix('.md')}.md"


def targets(text: str) -> list[str]:
    """Return the relative links of a page."""
    return [match[2] for match in LINK.finditer(FENCE.sub("", text))]


def relinked(text: str, source: str) -> str:
    """Return the text of a page, whose path in the repository is given, with links as they are on the site."""
    here = posixpath.dirname(place(source))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if (ROOT / target).is_dir():
            target += "/README.md"
        if not (ROOT / target).exists():
            return match[0]  # mkdocs says so
        return match[1] + posixpath.relpath(place(target), here or ".") + match[3]

    return "".join(part if part.lstrip().startswith("```") else LINK.sub(link, part) for part in FENCE.split(text))


def shown(source: str) -> str:
    """Return the page that shows a file."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        return relinked(text, source)
    return f"# `{source}`\n\n````{LANGUAGES.get(Path(source).suffix, 'text')}\n{text.rstrip()}\n````\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the home page, and the files that pages link to."""
    todo = ["README.md", *WHOLE, *(f"docs/{f.src_uri}" for f in files if f.src_uri.endswith(".md"))]
    seen: set[str] = set()
    while todo:
        source = todo.pop()
        if source in seen:
            continue
        seen.add(source)
        for target in targets((ROOT / source).read_text(encoding="utf-8")) if source.endswith(".md") else ():
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            path = path + "/README.md" if (ROOT / path).is_dir() else path
            if (ROOT / path).is_file() and not path.startswith("docs/"):
                todo.append(path)
        if not source.startswith("docs/"):
            files.append(File.generated(config, place(source), content=shown(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets are on the site."""
    return markdown if page.file.generated_by else relinked(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, **_: Any) -> str:
    """Show the roles of docstrings (``:class:`~seqrl.algo.Algo```) as the names that they stand for."""
    return ROLE.sub(lambda match: f"<code>{match[1].rsplit('.', 1)[-1]}</code>", html)
