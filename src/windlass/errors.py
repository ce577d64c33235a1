"""Every error that Windlass raises, as one tree. Each message names what happened, why, and what to do next.

WindlassError
├── ConfigError           a setting is wrong
├── RegistrationError     a handler cannot become a job type
│   └── DuplicateType
├── ProgramError          an app file cannot be loaded
├── FilterError           a filter cannot be parsed
├── EnqueueError          an enqueue was refused; nothing was written
│   ├── UnknownType
│   ├── InvalidInput      .path names the place in the input
│   ├── InvalidOption
│   ├── UnusableConnection
│   └── IdempotencyConflict
├── StoreError
│   ├── StoreUnavailable  the database cannot be used now: transient, retried by workers
│   │   └── StoreBusy     it answers, but one statement took too long, or met locks
│   │       └── ReadTimeout  a list took longer than read_timeout
│   ├── StoreRefused      the database refused a statement, whatever its values: a grant, a table, a disk
│   ├── ValueRefused      the database refused a value: the same statement is refused again
│   ├── StoreCorrupt      the file is not a database, or is read-only
│   ├── SchemaMissing
│   ├── SchemaOutdated
│   ├── SchemaTooNew
│   └── WorkersOutdated   a migration would leave live workers two versions behind
├── BrokerError           a broker that carries deliveries; the store has the jobs all the same
│   ├── BrokerUnavailable it cannot be reached now: transient, workers poll the store meanwhile
│   └── BrokerRefused     it refuses: wrong credentials, a queue declared with other arguments
├── EnvelopeError         a message is no envelope that this program can read
├── LeaseLost             another worker owns the job now; nothing was changed
├── TransitionRefused     the job is in a state that does not allow this
├── FlowError             a name used twice in one run, a need that no children can meet, a cycle
├── ChildrenFailed        ctx.wait(): too many of the awaited jobs ended badly
├── SignalTimeout         ctx.wait_signal(): the signal was not sent in time
├── AdmissionError        a gate, a budget or a weight is impossible
├── UnknownLimit          no limit or rate of that name was declared
├── ScheduleError         a schedule is impossible: a cron line that never fires, an unknown time zone
├── ScheduleNotFound
├── TokenError            an API token cannot be created so: its role is none, or an admin has a tenant
│   └── TokenExists
├── TokenNotFound
├── JobNotFound
├── JobUnsuccessful       result() of a job that ended without a result
│   ├── JobDead
│   └── JobCancelled
├── ResultTimeout
├── FetchError            windlass.fetch: an address of a user's could not be fetched
│   ├── FetchRefused      no retry changes it: a private address, another scheme, a circle, a body that is too large
│   └── FetchFailed       a retry may help: no connection, an end in the middle, too slow
├── AccessDenied          HTTP API: the caller's role or tenant does not allow this
├── TokenRefused          HTTP API: no token, or one that is unknown, revoked or expired
├── RequestRefused        HTTP API: the host, origin or body of a request; .status is the answer's
└── BlockingCall          a blocking call on a running event loop
"""

from __future__ import annotations


class WindlassError(Exception):
    """The root of every error that Windlass raises itself."""


class ConfigError(WindlassError, ValueError):
    """A setting is missing, misspelt or impossible."""


class RegistrationError(WindlassError, TypeError):
    """A function cannot become a job type as it is declared."""


class DuplicateType(RegistrationError):
    """Two handlers claim one type name."""


class ProgramError(WindlassError):
    """The program that should hold a `Windlass` cannot be loaded."""


class FilterError(WindlassError, ValueError):
    """A filter cannot be parsed; the message names the place and a correct form.

    `error.position` is the place as an index into the text, and `error.corrected` the whole filter with the name that
    was probably meant; both are None where there is no such thing.
    """

    def __init__(self, message: str, *, position: int | None = None, corrected: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.corrected = corrected


class EnqueueError(WindlassError, ValueError):
    """An enqueue was refused; nothing was written.

    `error.path` names the place in a call of `app.enqueue_named(…)`, as in `$[17].options`; None for other enqueues.
    """

    path: str | None = None


class UnknownType(EnqueueError):
    """No handler of this program has that type."""


class InvalidInput(EnqueueError):
    """The input does not fit the handler's hints or the JSON profile; `error.path` names the place, as in `$.to[3]`."""

    path: str

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class InvalidOption(EnqueueError):
    """An enqueue option is misspelt, contradictory or out of range."""


class UnusableConnection(EnqueueError):
    """The connection given as `conn=` cannot carry an enqueue."""


class IdempotencyConflict(EnqueueError):
    """The idempotency key was used before, for another type or input."""


class StoreError(WindlassError):
    """The store failed. Raised as this class when the reason may be a value or not, as with a trigger that raises."""

    of_database = False  # whether the database, and no value, is certainly the reason


class StoreUnavailable(StoreError):
    """The database cannot be used now. Workers wait and try again."""

    of_database = True


class StoreBusy(StoreUnavailable):
    """The database answers, but a statement took too long, or met deadlocks or a locked file. Trying again helps."""


class ReadTimeout(StoreBusy):
    """A list of jobs, queues, tenants or the audit took longer than `read_timeout`. Narrow it, or set a longer time."""


class StoreRefused(StoreError):
    """The database refused a statement for a reason that no value can have. Workers wait and try again."""

    of_database = True


class ValueRefused(StoreError):
    """The database refused a value, such as one that breaks a constraint: trying again cannot help."""


class StoreCorrupt(StoreError):
    """The file is no database, is read-only, or cannot be opened."""

    of_database = True


class SchemaMissing(StoreError):
    """The database has no Windlass schema yet."""

    of_database = True


class SchemaOutdated(StoreError):
    """The schema is older than this program: a deploy migrates first, and then starts the new program."""

    of_database = True


class SchemaTooNew(StoreError):
    """The schema is two numbers or more ahead of this program, which therefore never touches it."""

    of_database = True


class WorkersOutdated(StoreError):
    """A migration was not applied: live workers run programs that could not work with the schema after it."""

    of_database = True


class BrokerError(WindlassError):
    """A broker failed. No job is lost: the store has it, and workers poll the store."""


class BrokerUnavailable(BrokerError):
    """The broker cannot be used now. Windlass connects again by itself."""


class BrokerRefused(BrokerError):
    """The broker answers and refuses: wrong credentials, a missing right, or a queue declared with other arguments."""


class EnvelopeError(WindlassError, ValueError):
    """A message is no envelope that this program can read, or a job cannot be put into one."""


class LeaseLost(WindlassError):
    """The lease is not current any more: another worker may own the job, and nothing was changed."""


class TransitionRefused(WindlassError):
    """The job's state does not allow what was asked."""


class FlowError(WindlassError, ValueError):
    """A flow is impossible: a name used twice in one run, a need above the number of jobs, a cycle, a self-wait."""


class ChildrenFailed(WindlassError):
    """Too many of the awaited jobs ended badly: the need cannot be met any more."""


class SignalTimeout(WindlassError, TimeoutError):
    """The signal was not sent before the timeout."""


class AdmissionError(WindlassError, ValueError):
    """A gate, a budget or a weight is impossible; nothing was changed."""


class UnknownLimit(WindlassError, LookupError):
    """No limit or rate of that name was ever declared here."""


class ScheduleError(WindlassError, ValueError):
    """A schedule is impossible as it is declared or edited; nothing was changed."""


class ScheduleNotFound(WindlassError, LookupError):
    """No schedule of that name was ever declared here."""


class TokenError(WindlassError, ValueError):
    """An API token cannot be created as asked; nothing was changed."""


class TokenExists(TokenError):
    """A live token has that name."""


class TokenNotFound(WindlassError, LookupError):
    """No token that could be revoked has that name or id."""


class JobNotFound(WindlassError, LookupError):
    """No job has that id, or its history was deleted."""


class JobUnsuccessful(WindlassError):
    """`result()` of a job that ended without a result."""


class JobDead(JobUnsuccessful):
    """The job is dead: its attempts are used up, or an error was permanent."""


class JobCancelled(JobUnsuccessful):
    """The job was cancelled."""


class ResultTimeout(WindlassError, TimeoutError):
    """The job had not ended at the timeout; it goes on."""


class FetchError(WindlassError):
    """An address that a user gave could not be fetched: see `windlass.fetch`."""


class FetchRefused(FetchError):
    """The address, or what it answers, is refused: it is private, redirects in a circle, or is too large."""


class FetchFailed(FetchError):
    """The server cannot be reached, ended in the middle, or took too long."""


class AccessDenied(WindlassError, PermissionError):
    """The caller's role or tenant does not allow what was asked; nothing was changed."""


class TokenRefused(WindlassError, PermissionError):
    """The request has no token, or one that is unknown, revoked or expired."""


class RequestRefused(WindlassError):
    """A request is refused before it is read: by its host, its origin, or the size or time of its body."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class BlockingCall(WindlassError, RuntimeError):
    """A blocking call on a running event loop would stop that loop."""
