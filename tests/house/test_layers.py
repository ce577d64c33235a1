"""Imports point one way: each part of the package imports from the parts that its row names, and from itself.

Imports inside functions and under TYPE_CHECKING count as well: they point the same way, or have a reason below.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from .source import Import, expect_none, imports, modules

BASE = "actor address blocking broker_address clock config config_readers errors failpoints names words"
MODEL = f"{BASE} model payload policy"
PROGRAM = f"{MODEL} store connection client declare handler handles methods documents"

LAYERS = {
    # part: the parts that it may import
    "errors": "",
    "names": "errors",
    "actor": "errors names",
    "address": "errors",
    "broker_address": "address errors",
    "blocking": "errors words",
    "clock": "errors",
    "failpoints": "errors",
    "config_readers": "address broker_address errors",
    "config": "actor address clock config_readers errors names",
    "words": "config",
    "fetch": "clock errors",
    "model": BASE,
    "payload": BASE,
    "policy": f"{BASE} model payload",
    "observe": MODEL,
    "store": f"{BASE} model policy",
    "connection": f"{BASE} model store",
    "transport": f"{BASE} model payload store",
    "documents": MODEL,
    # What a program declares, calls and is given: these know each other.
    "client": f"{PROGRAM} observe transport",
    "declare": f"{PROGRAM} observe",
    "handler": f"{PROGRAM} observe",
    "handles": PROGRAM,
    "methods": f"{PROGRAM} transport",
    "app": f"{PROGRAM} observe",
    "__init__": f"{PROGRAM} app observe transport",
    # What runs jobs.
    "runtime": f"{PROGRAM} app observe transport",
    # What nothing else imports.
    "web": f"{PROGRAM} app observe",
    "cli": f"{PROGRAM} app observe runtime transport web __init__",
    "testing": f"{PROGRAM} app observe runtime __init__",
    "integrations": f"{PROGRAM} app observe runtime __init__ cli",
    "__main__": "cli",
}

APART = {
    # part: the parts that it may not import, although the folder above it may
    "store.postgres": "store.sqlite",
    "store.sqlite": "store.postgres",
    "store.parts": "store.postgres store.sqlite store.doctor store.delivery",
    "declare": "store connection",
    "runtime": "connection handles methods client",
}

EXCEPTIONS = {
    ("store", "transport.rated_store"): "make_store puts rates into Redis; imported when the setting asks for it",
    ("store", "transport.redis_rates"): "as above",
    ("app", "runtime.worker"): "app.worker() makes a worker; imported when called, so that an enqueue loads no worker",
    ("app", "integrations.lifespan"): "app.lifespan() is a method for the reader's sake; imported when called",
    ("declare.named_calls", "store.protocol"): "types only: what the announced types are read from",
    ("declare.decorator", "app"): "types only: a job type keeps the app that declared it",
    ("declare.jobtype", "app"): "types only: a job type keeps the app that declared it",
    ("declare.pipeline_type", "app"): "types only: a pipeline keeps the app that declared it",
    ("declare.program", "app"): "looks for a `Windlass` in the user's module; imported when called",
    ("model.rows", "policy.reports.life"): "row.life() is a method for the reader's sake; imported when called",
    ("observe.tracing", "app"): "types only: `instrument(app)` adds to the app's registry",
    ("observe.monitors", "app"): "types only: it reads the ticks of the app's schedules",
    ("observe.sentry", "app"): "types only: `instrument(app)` adds to the app's registry",
    ("policy.limit", "declare.registry"): "types only: limits are bound to a definition",
}


def part(module: str) -> str:
    """The first folder or module below the package."""
    return [*module.split("."), "__init__"][1]


def inside(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"windlass.{folder}.")


def key(found: Import) -> tuple[str, str]:
    return found.module.removeprefix("windlass."), found.imported.removeprefix("windlass.")


def is_allowed(found: Import) -> bool:
    own, other = part(found.module), part(found.imported)
    apart = [names.split() for folder, names in APART.items() if inside(found.module, folder)]
    if any(inside(found.imported, folder) for names in apart for folder in names):
        return False
    return own == other or other in LAYERS.get(own, "").split()


def test_each_part_has_its_row() -> None:
    parts = {part(name) for name in modules()}

    expect_none(parts - set(LAYERS), "give each new folder or module a row in LAYERS with what it may import")
    expect_none(set(LAYERS) - parts, "these rows of LAYERS name nothing any more: remove them")


@pytest.mark.parametrize("own", LAYERS)
def test_imports_point_to_lower_layers(own: str) -> None:
    wrong = [found for found in imports() if part(found.module) == own and not is_allowed(found)]

    expect_none(
        (f"{found.module}:{found.line} imports {found.imported}" for found in wrong if key(found) not in EXCEPTIONS),
        f"{own} may import itself and {LAYERS[own] or 'nothing else of Windlass'} (without what APART names): move the "
        "code to the layer that has what it needs, pass the value as an argument, or give the reason in EXCEPTIONS",
    )


def test_each_exception_is_needed() -> None:
    needed = {key(found) for found in imports() if not is_allowed(found)}

    expect_none(map(" → ".join, set(EXCEPTIONS) - needed), "no such import is left: remove the line from EXCEPTIONS")


def test_an_exception_loads_nothing_at_the_start() -> None:
    expect_none(
        (f"{found.module}:{found.line}" for found in imports() if key(found) in EXCEPTIONS and found.at_start),
        "an import against the layers stands inside a function or under TYPE_CHECKING: move it there",
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    needs: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.at_start and found.imported != found.module:
            needs[found.module].add(found.imported)
    circle = ()
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]

    expect_none([" → ".join(circle)] if circle else [], "move what these modules share to a module below them")
