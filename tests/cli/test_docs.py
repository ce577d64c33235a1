"""docs/cli.md and docs/settings.md against the commands and settings of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli.main import EPILOG, cli
from windlass.clock import spell
from windlass.config import PRESETS, duration, names, variable
from windlass.model.filter import FIELDS

from .cli_store import CliStore

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = [name for name, command in cli.commands.items() if not command.hidden]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_a_place_in_the_docs(name: str) -> None:
    output = CliRunner().invoke(cli, [name, "--help"], prog_name="windlass")

    assert output.exit_code == 0
    assert output.output.startswith(f"Usage: windlass {name}")
    assert re.search(rf"\b{name}\b", (DOCS / "cli.md").read_text())


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_filter_is_described(field: str) -> None:
    assert re.search(rf"`{field}[:.]" if field != "status" else "state", (DOCS / "cli.md").read_text())


def test_a_job_has_the_documented_shape(file_cli_store: CliStore) -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", (DOCS / "cli.md").read_text(), re.DOTALL | re.MULTILINE)
    (job,) = file_cli_store.enqueue()

    listed = file_cli_store.run_json("jobs", "list")["jobs"]
    shown = file_cli_store.run_json("jobs", "show", str(job))

    assert [list(each) for each in listed] == [list(json.loads(example))]
    more = [name for name in shown if name not in listed[0]]
    assert more == ["reasons", "waits", "links", "steps", "signals", "audit"]
    assert all(f"`{name}`" in (DOCS / "cli.md").read_text() for name in more)


def test_the_exit_codes_of_the_help_are_those_of_the_docs() -> None:
    help_codes = re.findall(r"^ +(\d+(?: \+ n)?)  ", EPILOG, re.MULTILINE)

    assert re.findall(r"^\| (\d+(?: \+ n)?) \|", (DOCS / "cli.md").read_text(), re.MULTILINE) == help_codes


@pytest.mark.parametrize("name", names())
def test_every_setting_is_described_with_its_variable_and_default(name: str) -> None:
    item = names()[name]
    default = shown(name, item.default)

    assert f"| `{name}` | `{variable(name)}` | {default} | {item.metadata['about']} |" in (
        (DOCS / "settings.md").read_text()
    )


def test_the_paces_are_described_with_their_presets() -> None:
    text = (DOCS / "settings.md").read_text()

    for name in {name for preset in PRESETS.values() for name in preset}:
        values = [shown(name, preset.get(name, names()[name].default)) for preset in PRESETS.values()]
        assert f"| `{name}` | {' | '.join(values)} |" in text


def shown(name: str, value: object) -> str:
    if value in (None, ()):
        return "none"
    if names()[name].metadata["read"] is duration:
        assert isinstance(value, float)
        return spell(value) if value else "0"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
