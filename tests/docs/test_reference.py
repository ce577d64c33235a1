"""docs/reference.md is what `make reference` writes, and has every public name, member, option and limit."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import reference
import windlass
from windlass.clock import spell
from windlass.config import Settings
from windlass.config import names as settings
from windlass.declare.jobtype import ConfiguredJob
from windlass.declare.options import Options
from windlass.declare.registry import DEFAULT_RETRIES, PRIORITIES, JobOptions
from windlass.errors import WindlassError
from windlass.handler.log import LOG_BYTES, LOG_LINES
from windlass.names import LONGEST_NAME
from windlass.payload.profile import DEEPEST, LARGEST
from windlass.payload.sanitise import LONGEST_MESSAGE, LONGEST_TRACEBACK
from windlass.policy import cron, limit, retry, unique

TEXT = reference.TARGET.read_text(encoding="utf-8")
PUBLIC = {name: getattr(windlass, name) for name in windlass.__all__}
CLASSES = [
    thing for thing in PUBLIC.values() if isinstance(thing, type) and not issubclass(thing, WindlassError)
]  # the tree has the errors
SET = re.compile(r"^ {8}self\.([a-z]\w*)(?:: [^=\n]+)? = ", re.MULTILINE)
"""A public attribute that a method sets."""


def test_the_page_is_what_the_command_writes() -> None:
    if reference.render() != TEXT:
        pytest.fail("docs/reference.md differs from the docstrings or from tools/reference.md; run: make reference")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert re.search(rf"^##+ {name}$|^ *- (?:\*\*)?`{name}\b|`{name}`", TEXT, re.MULTILINE), "run: make reference"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_member_of_a_class_is_there(cls: type) -> None:
    missing = [name for name in public_members(cls) if not is_described(cls, name)]

    assert missing == [], f"docs/reference.md lacks these of {cls.__name__}; run: make reference"


@pytest.mark.parametrize("name", ["Job", "JobRow", "TypedCall", "Limit"])
def test_what_is_for_the_package_itself_is_not_there(name: str) -> None:
    cls = PUBLIC[name]
    hidden = {name for each in cls.__mro__ for name in reference.INTERNAL.get(each.__name__, ())}

    assert hidden <= {*dir(cls)}, "tools/reference.py: INTERNAL names a member that does not exist"
    assert [name for name in hidden if is_described(cls, name)] == []


@pytest.mark.parametrize("option", JobOptions.__annotations__)
def test_every_option_of_a_declaration_is_there(option: str) -> None:
    row = re.search(rf"^\| `{option}` \| .* \| (.*) \|$", section("@app.job"), re.MULTILINE)

    assert row, "run: make reference"
    assert row[1], f"give {option} its sentence in the section `Options:` of Windlass.job"


@pytest.mark.parametrize("option", Options.__struct_fields__)
def test_every_option_of_an_enqueue_is_there(option: str) -> None:
    row = re.search(rf"^\| `{option}` \| .* \| (.*) \|$", section("JobType"), re.MULTILINE)

    assert row, "run: make reference"
    assert row[1], f"give {option} its sentence in the section `Options:` of {ConfiguredJob.__name__}.options"


def test_every_error_is_in_the_tree() -> None:
    errors = re.findall(r"^ *- \*\*`(\w+)`\*\*", section("Errors"), re.MULTILINE)

    assert sorted(errors) == sorted(cls.__name__ for cls in below(WindlassError))


def test_the_sizes_are_those_of_the_code() -> None:
    rows = section("@app.job")

    for shown in (
        f"| {LARGEST >> 10} KiB, {DEEPEST} levels deep |",
        f"| {LONGEST_MESSAGE >> 10} KiB and {LONGEST_TRACEBACK >> 10} KiB |",
        f"| {LOG_LINES:,} lines and {LOG_BYTES >> 10} KiB |",
        f"| {LONGEST_NAME} characters, no control characters |",
        f"| {limit.LONGEST_NAME} characters, no colon |",
        f"| {unique.LONGEST_KEY} characters as they are |",
        f"| −{-PRIORITIES.start:,} to {PRIORITIES.stop - 1:,}; a higher number starts first |",
        f"| {spell(retry.LONGEST_DELAY).removesuffix('d')} days |",
        f"| {spell(limit.LONGEST_HOLD).removesuffix('d')} day |",
        f"| at least {spell(cron.SHORTEST).removesuffix('ms')} ms |",
    ):
        assert shown in rows


@pytest.mark.parametrize("pace", DEFAULT_RETRIES)
def test_the_defaults_of_a_pace_are_those_of_the_code(pace: str) -> None:
    settings = Settings.load({}, pace=pace)
    policy = DEFAULT_RETRIES[settings.pace]
    delays = dict.fromkeys(spell(policy.delay(attempt)) for attempt in range(1, settings.max_attempts))
    shown = ", ".join(delays) if policy.delay(1) else "none: the next scan claims the job"
    limit = "none" if settings.timeout is None else spell(settings.timeout)

    assert f"| `{pace}` | {settings.max_attempts} | {shown} | {limit} |" in TEXT


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    head = re.search(rf"^(##+) {title}$", TEXT, re.MULTILINE)
    assert head, f"no heading {title!r}; run: make reference"
    return re.split(rf"^#{{2,{len(head[1])}}} ", TEXT[head.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def public_members(cls: type) -> set[str]:
    """Methods, properties and fields that a class or a base of the package has, and attributes that it sets."""
    mine = [each for each in cls.__mro__ if each.__module__.startswith("windlass")]
    names = {name for each in mine for name in [*vars(each), *getattr(each, "__struct_fields__", ())]}
    names |= {name for each in mine for name in SET.findall(source_of(each))}
    return {name for name in names if not name.startswith("_") and not reference.is_internal(cls, name)}


def source_of(cls: Any) -> str:
    """The source; `inspect` does not find a class that is named as users import it, such as windlass.Retry."""
    return inspect.getsource(cls.__init__ if cls.__module__ == "windlass" else cls)


def is_described(cls: type, name: str) -> bool:
    if issubclass(cls, Exception):  # a directive: its attributes are what its constructor takes
        return bool(re.search(rf"^- `{cls.__name__}\(.*\b{name}: ", TEXT, re.MULTILINE))
    if cls is windlass.Settings and name in settings():
        return True  # in docs/settings.md, by tests/cli/test_docs.py
    inherited: Any = getattr(windlass.JobType, name, None)
    home = "JobType" if inherited is not None and inherited is getattr(cls, name, None) else cls.__name__
    return bool(re.search(rf"\.{name}\b|`{name}`", section(home)))


def below(cls: type) -> set[type]:
    children: list[type] = cls.__subclasses__()
    return {cls}.union(*(below(child) for child in children if child.__module__ == cls.__module__))
