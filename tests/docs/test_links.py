"""What the documents name is there: links, anchors, files, folders, tables and statements.

A path in back-ticks is relative to `src/windlass/` or to the repository. `<dialect>` and `*` stand for both stores, and
`queries/x.sql` for the file of that name in each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "windlass"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
WITH_PATHS = [ARCHITECTURE, GLOSSARY, ROOT / "CONTRIBUTING.md"]

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MARKED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:[\w<>*.-]+/)+(?:[\w*]+\.\w+)?|[\w*]+\.(?:py|sql|md|toml)")
BLOCK = re.compile(r"^-- (?:name|fragment): (\w+)$", re.MULTILINE)
STATEMENT = re.compile(r"(?:[Ss]tatement|fragment) `(\w+)`")
CREATED = re.compile(r"CREATE TABLE (?:windlass\.|windlass_)(\w+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for file, anchor in LINK.findall(prose(document)):
        if "://" in file:
            continue
        target = document.parent / file if file else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{file}#{anchor}" if anchor else file)

    assert broken == [], "these links of the document lead nowhere"


@pytest.mark.parametrize("document", WITH_PATHS, ids=lambda document: document.name)
def test_every_path_is_there(document: Path) -> None:
    missing = sorted({path for path in paths(document) if not exists(path)})

    assert missing == [], "the document names what is not there: follow the move, or correct the name"


def test_every_folder_of_the_package_has_its_sentence() -> None:
    folders = {
        path.relative_to(PACKAGE).as_posix() + "/"
        for path in PACKAGE.rglob("*")
        if path.is_dir() and path.name not in ("__pycache__", "queries", "migrations")
    }
    tree = section(ARCHITECTURE, "The tree")
    missing = sorted(folder for folder in folders - set(MARKED.findall(tree)) if not folder.startswith("integrations/"))

    assert missing == [], "give the folder its row under 'The tree' in ARCHITECTURE.md: what lives there?"


def test_every_table_is_described() -> None:
    created = {
        name
        for path in PACKAGE.glob("store/*/migrations/*.sql")
        for name in CREATED.findall(path.read_text(encoding="utf-8"))
        if not name.endswith(("_default", "_new"))
    }
    rows = re.findall(r"^\| (`.+?`) \|", section(ARCHITECTURE, "The tables"), re.MULTILINE)
    described = {name for row in rows for name in MARKED.findall(row)}

    assert sorted(created ^ described) == [], "the tables of the migrations and those of ARCHITECTURE.md differ"


@pytest.mark.parametrize("document", WITH_PATHS, ids=lambda document: document.name)
def test_every_named_statement_is_there(document: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.glob("store/*/queries/*.sql")]
    there = {name for text in texts for name in BLOCK.findall(text)}
    named = set(STATEMENT.findall(re.sub(r"\s+", " ", prose(document))))

    assert sorted(named - there) == [], "no .sql file has a statement or fragment of this name"


def test_every_word_is_explained_once() -> None:
    words = re.findall(r"^\| ([a-z][\w ,-]*) \| [^|]+ \| [^|]+ \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    each = [word for row in words for word in row.split(", ") if word != "word"]  # the tables' heads

    assert len(each) > 80
    assert sorted(word for word in set(each) if each.count(word) > 1) == []


def prose(document: Path) -> str:
    return FENCED.sub("", document.read_text(encoding="utf-8"))


def section(document: Path, title: str) -> str:
    return prose(document).split(f"\n## {title}\n")[1].split("\n## ")[0]


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(prose(document))}


def paths(document: Path) -> Iterator[str]:
    for marked in MARKED.findall(prose(document)):
        if PATH.fullmatch(marked):
            yield marked


def exists(path: str) -> bool:
    pattern = path.replace("<dialect>", "*").rstrip("/")
    if pattern.startswith(("queries", "migrations")):
        pattern = f"store/*/{pattern}"
    found = [*PACKAGE.glob(pattern), *ROOT.glob(pattern)]
    return len(found) >= (2 if pattern.startswith("store/*/") and not pattern.endswith("*.py") else 1)
