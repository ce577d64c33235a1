"""Loading a program: what a user may type, and the errors when it cannot be loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.declare.program import check_source, find_job, load, parse
from windlass.errors import ProgramError

APP = """
from windlass import Windlass
app = Windlass()

@app.job
def add(a: int, b: int) -> int:
    return a + b

def plain() -> None: ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh current directory; modules imported from it are forgotten again."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("windlass."):
            del sys.modules[name]


def write(name: str, text: str = APP) -> Path:
    file = Path.cwd() / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def refusal(target: str) -> str:
    with pytest.raises(ProgramError) as caught:
        load(target)
    return str(caught.value)


@pytest.mark.parametrize("target", ["program.py", "./program.py", "program.py:app", "program", "program:app"])
def test_one_app_is_found_by_every_way_to_write_it(target: str) -> None:
    write("program.py")

    app = load(target)

    assert app._registry.types == ("add",)
    assert app is sys.modules["program"].app


@pytest.mark.parametrize("target", ["quay.jobs", "quay.jobs:app", "quay/jobs.py", "quay/jobs.py:app"])
def test_a_module_of_a_package_can_use_relative_imports(target: str) -> None:
    write("quay/__init__.py", "")
    write("quay/tools.py", "NAME = 'till'")
    write("quay/jobs.py", "from .tools import NAME\n" + APP)

    app = load(target)

    assert app is sys.modules["quay.jobs"].app


def test_a_file_elsewhere_can_import_its_neighbours() -> None:
    write("elsewhere/neighbour.py", "NAME = 'till'")
    write("elsewhere/voyages.py", "import neighbour\n" + APP)

    assert load("elsewhere/voyages.py")._registry.types == ("add",)


def test_the_reference_of_a_file_leads_to_it_from_anywhere() -> None:
    file = write("deep/program.py")

    app = load("deep/program.py")

    assert app._program == f"{file}:app"
    assert load(app._program) is app


def test_the_reference_of_a_module_is_its_name() -> None:
    write("program.py")

    assert load("program")._program == "program:app"


def test_a_file_named_like_a_known_module_leaves_that_module_alone() -> None:
    import json

    write("json.py")
    write("tabnanny.py")  # a module of the standard library that is not imported yet, and may be later
    assert "tabnanny" not in sys.modules

    load("json.py")
    load("tabnanny.py")

    assert sys.modules["json"] is json
    assert "tabnanny" not in sys.modules


def test_a_file_whose_name_is_no_identifier_is_loaded() -> None:
    write("my-app.py")

    assert load("my-app.py")._registry.types == ("add",)


def test_an_app_with_two_names_is_one_app() -> None:
    write("program.py", APP + "\nalias = app\n")

    load("program.py")

    app = load("program.py:alias")
    assert app._program is not None
    assert app._program.endswith("program.py:alias")


def test_of_two_apps_one_has_to_be_named() -> None:
    write("program.py", "from windlass import Windlass\nfirst = Windlass()\nsecond = Windlass()\n")

    message = refusal("program.py")

    assert "first, second" in message
    assert "program.py:first" in message
    assert load("program.py:second") is sys.modules["program"].second


def test_the_error_for_a_module_without_an_app_shows_how_to_make_one() -> None:
    write("program.py", "x = 1")

    assert "app = Windlass()" in refusal("program.py")


def test_a_wrong_name_gets_a_suggestion() -> None:
    write("program.py")

    assert "did you mean 'app'?" in refusal("program.py:aap")
    assert "is a job and no app; its program is program.py" in refusal("program.py:add")


def test_a_missing_file_gets_near_names() -> None:
    write("program.py")

    assert "did you mean program.py?" in refusal("progam.py")
    assert "did you mean ./program.py?" in refusal("./program")
    assert "neither does the directory nowhere" in refusal("nowhere/program.py")


def test_a_directory_is_no_program() -> None:
    write("shop/app.py")

    assert refusal("./shop") == "./shop is a directory; name a file in it; did you mean app.py?"


def test_a_missing_module_gets_near_names() -> None:
    write("shop/__init__.py", "")
    write("shop/jobs.py")

    assert "did you mean shop.jobs?" in refusal("shop.job")
    assert "did you mean shop?" in refusal("shp.jobs")


@pytest.mark.parametrize("target", ["", ":app", "program.py:", "program.py:a b", "no-module", "a..b"])
def test_what_is_no_reference_is_refused(target: str) -> None:
    write("program.py")

    assert "write it like" in refusal(target)


def test_a_syntax_error_shows_file_line_and_text() -> None:
    write("program.py", "import os\ndef add(a: int:\n    pass\n")

    message = refusal("program.py")

    assert message.startswith("program.py, line 2: ")
    assert "def add(a: int:" in message
    assert "Traceback" not in message


def test_a_syntax_error_in_an_imported_file_names_that_file() -> None:
    write("broken.py", "x = (\n")
    write("program.py", "import broken\n")

    assert refusal("program.py").startswith("broken.py, line 1: ")


def test_an_import_error_inside_the_program_shows_its_own_cause() -> None:
    write("helper.py", "import no_such_package\n")
    write("program.py", "import helper\n" + APP)

    message = refusal("program.py")

    assert "No module named 'no_such_package'" in message
    assert "program.py, line 1" in message
    assert "helper.py, line 1" in message
    assert "importlib" not in message


def test_an_error_at_import_leaves_no_half_module_behind() -> None:
    file = write("program.py", "1 / 0")
    assert "ZeroDivisionError: division by zero" in refusal("program.py")

    file.write_text(APP)
    stamp = file.stat().st_mtime + 10
    os.utime(file, (stamp, stamp))  # or the byte code of the same second would be used

    assert load("program.py")._registry.types == ("add",)


def test_the_error_for_a_program_that_exits_at_import_names_the_reason() -> None:
    write("program.py", "import sys; sys.exit(3)")

    assert "sys.exit(3)" in refusal("program.py")


def test_the_error_for_a_wrong_declaration_shows_its_place_and_nothing_else() -> None:
    write("program.py", APP + "\n@app.job\ndef add(a: int) -> int: ...\n")

    message = refusal("program.py")

    assert message.startswith("program.py, line 11: job type 'add' is declared twice")
    assert "\n" not in message


def test_a_job_is_found_by_its_name_in_the_module() -> None:
    write("program.py")

    assert find_job("program:add")._definition.type == "add"
    assert find_job("program.py:add") is find_job("program:add")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("program:ad", "did you mean 'add'?"),
        ("program", "for example program:add"),
        ("program:plain", "is a function and no job; write @app.job above it"),
        ("program:app", "is a Windlass and no job"),
    ],
)
def test_what_is_no_job_is_refused(target: str, message: str) -> None:
    write("program.py")

    with pytest.raises(ProgramError) as caught:
        find_job(target)

    assert message in str(caught.value)


def test_a_source_is_checked_without_being_run() -> None:
    write("loud.py", "raise SystemExit('it ran')")
    write("broken.py", "def f(:\n")

    check_source(parse("loud.py"))
    with pytest.raises(ProgramError, match=r"broken\.py, line 1"):
        check_source(parse("broken.py"))
