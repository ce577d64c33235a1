"""The caller of a request: a name for the audit, a role, and the tenant that a token may be bound to."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from windlass.actor import acting_as
from windlass.errors import AccessDenied
from windlass.model.token import Role

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

NEEDS = "_needs"  # the attribute of a checked method


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, and what they may do: `Caller(name="ann", role=Role.OPERATOR)`.

    With a `tenant`, the caller sees and changes the jobs of that tenant, and nothing else.
    """

    name: str  # the actor in the audit
    role: Role = Role.VIEWER
    tenant: str | None = None

    def require(self, role: Role, *, tenants: bool) -> None:
        """Raise AccessDenied unless the caller has this role, and may do what concerns every tenant."""
        if not self.role.allows(role):
            raise AccessDenied(
                f"{self.name} is {self.role.value}, and this needs {role.value}; ask an admin for another token: "
                f"windlass token create NAME --role {role.value}"
            )
        if self.tenant is not None and not tenants:
            raise AccessDenied(
                f"{self.name} is bound to tenant {self.tenant}, and this concerns every tenant; use a token without a "
                "tenant"
            )


class Permission(msgspec.Struct, frozen=True):
    """What a method of the service needs."""

    role: Role
    tenants: bool  # whether callers of one tenant may call it: the method narrows what they see


Method = Callable[Concatenate[S, Caller, P], Awaitable[T]]


def needs(role: Role, *, tenants: bool = False) -> Callable[[Method[S, P, T]], Method[S, P, T]]:
    """Check the caller before a method of the service runs, and name the caller in the audit of what it changes.

    The check is here and not in a route: a route that forgets it cannot exist, and a program that calls the service has
    the same rules.
    """

    def decorate(method: Method[S, P, T]) -> Method[S, P, T]:
        @functools.wraps(method)
        async def checked(self: S, caller: Caller, /, *args: P.args, **kwargs: P.kwargs) -> T:
            caller.require(role, tenants=tenants)
            with acting_as(caller.name):
                return await method(self, caller, *args, **kwargs)

        setattr(checked, NEEDS, Permission(role, tenants))
        return checked

    return decorate


def permission_of(method: Any) -> Permission | None:
    """What a method of the service needs; None where no check was declared."""
    found: Permission | None = getattr(method, NEEDS, None)
    return found
