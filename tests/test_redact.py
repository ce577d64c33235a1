"""Redaction: which names are secret, what is hidden in documents and texts, and what stays as it is."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import Windlass
from windlass.config import Settings
from windlass.errors import ConfigError, InvalidInput
from windlass.model.filter import parse
from windlass.policy.redaction import Redaction

HIDDEN = "[redacted]"
CANARY = "c4n4ry-7Qx!é"
LONG = 100_000

SECRET = [
    "password",
    "db_password",
    "dbpassword",
    "PGPASSWORD",
    "password2",
    "passwd",
    "pwd",
    "userPass",
    "secret",
    "clientSecret",
    "client-secret",
    "token",
    "X-Auth-Token",
    "accessToken",
    "authtoken",
    "csrfmiddlewaretoken",
    "Authorization",
    "auth",
    "basicAuth",
    "api_key",
    "apiKey",
    "APIKey",
    "X-API-Key",
    "apikey",
    "access_key",
    "AWSSecretAccessKey",
    "private.key",
    "credentials",
    "Cookie",
    "set-cookie",
    "session_id",
    "sessionId",
    "PHPSESSID",
    "bearer",
    "signature",
    "X-Amz-Signature",
    "ssn",
    "card_number",
    "cardNumber",
    "cvv",
    "pin",
    "otp",
    "jwt",
]
PLAIN = [
    "author",
    "authority",
    "author_id",
    "secretary",
    "ping",
    "opinion",
    "key",
    "monkey",
    "tokenizer",
    "design",
    "assign",
    "passenger",
    "pass_rate",
    "compass",
    "name",
    "session",
    "user",
    "cardinality",
    "url",
    "number",
]


@pytest.mark.parametrize("name", [*SECRET, "session id", "card number"])
def test_a_secret_name_hides_its_value(name: str) -> None:
    assert Redaction().value({name: CANARY, "to": "ann"}) == {name: HIDDEN, "to": "ann"}
    assert Redaction().value({name: 1234}) == {name: HIDDEN}


@pytest.mark.parametrize("name", PLAIN)
def test_other_names_keep_their_values(name: str) -> None:
    assert Redaction().value({name: "ann"}) == {name: "ann"}


@pytest.mark.parametrize("name", ["tokens_used", "max_tokens", "maxTokens", "token_count", "prompt_tokens", "tokens"])
def test_a_count_of_tokens_keeps_its_numbers_and_nothing_else(name: str) -> None:
    redaction = Redaction()

    assert redaction.value({name: 42}) == {name: 42}
    assert redaction.value({name: {"prompt": 4, "password": 5}}) == {name: {"prompt": 4, "password": HIDDEN}}
    assert redaction.value({name: CANARY}) == {name: HIDDEN}
    assert redaction.value({name: [1234]}) == {name: HIDDEN}


def test_further_names_are_secret_by_their_words() -> None:
    redaction = Redaction(["iban", "account_number", "tokens_used"])

    found = redaction.value({"customerIban": 1, "bank-account-number": 2, "tokens_used": 3, "urban": 4})

    assert found == {"customerIban": HIDDEN, "bank-account-number": HIDDEN, "tokens_used": HIDDEN, "urban": 4}


def test_secrets_are_hidden_at_any_depth_and_as_pairs() -> None:
    document = {
        "steps": [{"login": {"password": {"old": CANARY}}}],
        "headers": [["Authorization", CANARY], ["Accept", "text/html"]],
        "env": [{"name": "DB_PASSWORD", "value": CANARY}, {"name": "HOME", "value": "/root"}],
        "https://ann:c4n4ry@a.org/": "fetched",
        "fields": ["password", "email"],
    }

    assert Redaction().value(document) == {
        "steps": [{"login": {"password": HIDDEN}}],
        "headers": [["Authorization", HIDDEN], ["Accept", "text/html"]],
        "env": [{"name": "DB_PASSWORD", "value": HIDDEN}, {"name": "HOME", "value": "/root"}],
        f"https://{HIDDEN}@a.org/": "fetched",
        "fields": ["password", "email"],
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=[redacted]"),
        ('{"token": "a \\" b", "user": "ann"}', '{"token": [redacted], "user": "ann"}'),
        (r'body "{\"password\": \"abc\", \"a\": 1}"', r'body "{\"password\": [redacted], \"a\": 1}"'),
        ("headers={'Authorization': 'Basic abc', 'a': 'b'}", "headers={'Authorization': [redacted], 'a': 'b'}"),
        ("> Authorization: Bearer abc.def\nnext", "> Authorization: [redacted]\nnext"),
        ('Authorization: Digest username="ann", response="abc"', "Authorization: [redacted]"),
        ("Cookie: a=b; c=d\nnext", "Cookie: [redacted]\nnext"),
        ("sent Bearer abcdefgh1234", "sent Bearer [redacted]"),
        ("postgresql://ann:s3cret@db/shop", "postgresql://[redacted]@db/shop"),
        ("postgresql://ann:s3@cret@db/shop", "postgresql://[redacted]@db/shop"),
        ("https://ann:a/b@db/x", "https://[redacted]@db/x"),
        ("https://abc@sentry.io/1", "https://[redacted]@sentry.io/1"),
        ("https://a.org/?a=1&token=abc&b=2", "https://a.org/?a=1&token=[redacted]&b=2"),
        ("got eyJhbGciOi.eyJzdWIi.abc-_ here", "got [redacted] here"),
        ("got wl_0123456789abcdefghij here", "got [redacted] here"),
        ("API key: abc", "API key: [redacted]"),
        ("mysql --password hunter2 -h db", "mysql --password [redacted] -h db"),
        ("Command '['mysql', '--password', 'x1']'", "Command '['mysql', '--password', '[redacted]']'"),
        ("Key (email, token)=(a, b) already exists.", "Key (email, token)=[redacted] already exists."),
        ('    password: str = "hunter2"', "    password: [redacted]"),
        ("<password>x y</password>", "<password>[redacted]</password>"),
        ("credentials: {'a': ['b)', 1]} tail", "credentials: [redacted] tail"),
        ("connect(password=abc)", "connect(password=[redacted])"),
        ('password="cut off her', "password=[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\na-b\n-----END RSA PRIVATE KEY----- x", "[redacted] x"),
    ],
)
def test_secrets_are_hidden_in_texts(text: str, shown: str) -> None:
    redaction = Redaction()

    assert redaction.text(text) == shown
    assert redaction.text(shown) == shown
    assert redaction.value([text]) == [shown]


@pytest.mark.parametrize(
    "text",
    [
        "author: ann, state=dead",
        "max_tokens: 4096, tokens=12",
        "see https://a.org:8080/@ann and write to ann@a.org",
        "ValueError: ann is no address",
        'File "app.py", line 3, in send\n    raise ValueError(f"{to} is no address")',
        "",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert Redaction().text(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a ",
        "a.-",
        "://a:b",
        "://",
        "@",
        "eyJ",
        '"\\',
        "password=",
        "password:{",
        "secret=(",
        "token='",
        "x=1 ",
        "=:",
        "--a ",
    ],
)
@pytest.mark.parametrize("start", ["", 'secret="', "secret={", "://"])
def test_a_long_hostile_text_comes_to_an_end(start: str, piece: str) -> None:
    """Given a text for which a pattern with backtracking would take 10^10 steps, then the test ends all the same."""
    text = start + piece * (LONG // len(piece))

    assert len(Redaction().text(text)) <= 4 * len(text)


# Jobs


def job_document(**changes: Any) -> dict[str, Any]:
    error = {"type": "ValueError", "message": "no", "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z"}
    attempt = {"attempt": 1, "fence": 1, "worker": None, "outcome": "failed", "error": error, "log": ["INFO sent"]}
    return {
        "id": "0190163d-8694-739b-aea5-966c26f8ad90",
        "type": "rotate_password",
        "queue": "token",
        "key": None,
        "reason": None,
        "limits": [],
        "run_at": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
        "progress": {"total": None, "processed": 0, "failed": 0},
        "input": {"to": "ann"},
        "output": None,
        "error": error,
        "attempts": [attempt],
        "follow_ups": {},
        "why": None,
    } | changes


def test_a_job_without_secrets_is_shown_as_it_is() -> None:
    document = job_document()

    assert Redaction(["id", "queue"]).job(document) == (document, [])


def test_a_job_names_the_paths_of_what_is_hidden() -> None:
    document = job_document(
        input={"password": CANARY, "users": [{"first name": {"api-key": 1}}], "url": "https://a:b@c.org"},
        output={"access_token": CANARY},
        error={"type": "ValueError", "message": "token=abc", "traceback": "login(password='abc')"},
        attempts=[{"error": {"message": "token=abc"}, "log": ["INFO fine", "INFO Authorization: Basic abc"]}],
        reason="Authorization: Bearer abc",
        follow_ups={"dead": {"type": "tell", "token": CANARY}},
        why={"kind": "gate", "text": "queue mail is paused by ann: token=abc"},
    )

    shown, paths = Redaction().job(document)

    assert CANARY not in json.dumps(shown, ensure_ascii=False)
    assert "abc" not in json.dumps(shown)
    assert sorted(paths) == sorted(
        [
            "reason",
            "input.password",
            'input.users.0."first name"."api-key"',
            "input.url",
            "output.access_token",
            "error.message",
            "error.traceback",
            "attempts.0.error.message",
            "attempts.0.log.1",
            "follow_ups.dead.token",
            "why.text",
        ]
    )


def test_a_hidden_value_is_hidden_where_an_error_repeats_it() -> None:
    secret = "it's\n1 sécret"
    forms = [secret, repr(secret), json.dumps(secret), "https://a.org/it%27s%0A1%20s%C3%A9cret"]
    document = job_document(input={"password": secret}, error={"type": "E", "message": " ".join(forms), "attempt": 1})

    shown, paths = Redaction().job(document)

    assert "cret" not in shown["error"]["message"]
    assert paths == ["input.password", "error.message"]


@pytest.mark.parametrize("part", ["input", "output", "error", "attempts", "follow_ups", "reason", "why", "key"])
def test_a_secret_is_hidden_in_each_part_of_a_job(part: str) -> None:
    for value in (f"password={CANARY}", {"text": f"password={CANARY}"}, [f"password={CANARY}"]):
        shown, paths = Redaction().job(job_document(**{part: value}))

        assert CANARY not in json.dumps(shown, ensure_ascii=False)
        assert [path.split(".")[0] for path in paths] == [part]


# Filters


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("input.password:a*", "input.password:a*"),
        ("state:dead -output.login.apiKey:x queue:mail", "-output.login.apiKey:x"),
        ("input.credentials.user:ann", "input.credentials.user:ann"),
        ('input."card number":4..', 'input."card number":4..'),
        ("input.tokens_used:a*", "input.tokens_used:a*"),
        ("input.tokens_used:10..", None),
        ("input.login:x input.author:ann error:token state:dead", None),
        ("", None),
    ],
)
def test_a_term_that_compares_a_hidden_value_is_refused(text: str, refused: str | None) -> None:
    term = Redaction().refused_term(parse(text))

    assert (term and term.text) == refused


# Any document

leaves = st.none() | st.booleans() | st.integers() | st.sampled_from(["ann", "", "a b", "x/y", "2026-01-01"])
plain_names = st.sampled_from(PLAIN)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_names, inner, max_size=3),
    max_leaves=12,
)
canaries = st.recursive(
    st.just(CANARY),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(plain_names, inner, min_size=1, max_size=2),
    max_leaves=4,
)


@st.composite
def documents_with_secrets(draw: st.DrawFn) -> tuple[Any, Any]:
    """A document with a secret at some depth, and what is left of it."""
    name = draw(st.sampled_from([*SECRET, "tokens_used"]))
    given: Any = {name: draw(canaries)}
    shown: Any = {name: HIDDEN}
    for _ in range(draw(st.integers(0, 5))):
        beside = draw(documents)
        if draw(st.booleans()):
            given, shown = [beside, given], [beside, shown]
            if isinstance(beside, str):
                continue
        else:
            step = draw(plain_names)
            given, shown = {"beside": beside, step: given}, {"beside": beside, step: shown}
    return given, shown


@given(documents)
def test_a_document_without_secrets_stays_as_it_is(document: Any) -> None:
    assert Redaction().value(document) == document


@given(documents_with_secrets())
def test_no_secret_survives_and_nothing_else_changes(pair: tuple[Any, Any]) -> None:
    document, shown = pair
    before = copy.deepcopy(document)

    found = Redaction().value(document)

    assert found == shown
    assert document == before


@given(
    documents_with_secrets(),
    st.sampled_from(["input", "output", "error", "attempts", "follow_ups"]),
    st.sampled_from(["login of {} failed", "{}", "password: {}", "POST https://a.org/?p={}"]),
)
def test_no_secret_of_a_job_survives_in_its_errors_and_logs(pair: tuple[Any, Any], part: str, words: str) -> None:
    attempts = [{"error": {"message": words.format(CANARY)}, "log": [words.format(CANARY)]}]
    document = job_document(attempts=attempts, reason=words.format(CANARY)) | {part: pair[0]}
    before = copy.deepcopy(document)

    shown, paths = Redaction().job(document)

    assert CANARY not in json.dumps(shown, ensure_ascii=False)
    assert shown[part] == pair[1]
    assert paths
    assert document == before


@given(st.text(max_size=200))
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(Redaction().text(text), str)
    assert isinstance(Redaction().value({text: text}), dict)


# The setting


def test_the_setting_is_a_list_or_a_text_with_commas(tmp_path: Any) -> None:
    (tmp_path / "windlass.toml").write_text('redact = ["iban", "account_number"]\n')

    assert Settings.load({}).redact == ()
    assert Settings.load({}, folder=tmp_path).redact == ("iban", "account_number")
    assert Settings.load({"WINDLASS_REDACT": "iban, account_number"}).redact == ("iban", "account_number")
    assert Windlass("sqlite:///x.db", redact=["iban"]).settings.redact == ("iban",)


@pytest.mark.parametrize("wrong", [7, [7], [""], ["iban", "12"], "iban,,pin"])
def test_a_setting_that_is_no_list_of_names_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"redact=.*write it like \['iban', 'account_number'\]"):
        Settings.load({}, redact=wrong)


# An edited input


def restored(document: dict[str, Any], edited: Any, *, may_reveal: bool = True) -> Any:
    return Redaction().restored({"output": None, "error": None, **document}, edited, may_reveal=may_reveal)


def assert_refused(document: dict[str, Any], edited: Any, path: str, *, may_reveal: bool = True) -> None:
    with pytest.raises(InvalidInput) as refused:
        restored(document, edited, may_reveal=may_reveal)
    assert refused.value.path == path
    assert CANARY not in str(refused.value)


def test_an_edited_input_keeps_the_hidden_values_that_stand_where_they_stood() -> None:
    own = {
        "to": "ann",
        "password": CANARY,
        "sites": [f"https://u:{CANARY}@h/x", "b"],
        "own": HIDDEN,
        "in": {"token": [1]},
    }
    document = {"input": own}
    shown = Redaction().job(document)[0]["input"]
    assert CANARY not in json.dumps(shown, ensure_ascii=False)

    assert restored(document, {**shown, "to": "bob"}) == {**own, "to": "bob"}
    assert restored(document, {**shown, "password": "new"}) == {**own, "password": "new"}
    assert restored(document, {"password": HIDDEN}) == {"password": CANARY}
    moved = [
        ("$.to", {"to": HIDDEN}),
        ("$.sites.1", {"sites": shown["sites"][::-1]}),
        ("$.password", {"password": "x" + HIDDEN}),
    ]
    for path, edited in moved:
        assert_refused(document, {**shown, **edited}, path)


def test_who_may_not_reveal_a_value_keeps_it_only_by_changing_nothing() -> None:
    """Else the value could be sent to another host, or stand where nothing hides it."""
    own = {"to": "ann", "host": "db", "login": {"password": CANARY, "own": HIDDEN}}
    document = {"input": own}
    shown = Redaction().job(document)[0]["input"]
    typed = {**shown, "host": "evil", "login": {"password": "new", "own": HIDDEN}}

    assert restored(document, shown, may_reveal=False) == own
    assert restored(document, typed, may_reveal=False) == typed
    for changed in ({**shown, "host": "evil"}, {"login": shown["login"]}, {**shown, "login": {"password": HIDDEN}}):
        assert_refused(document, changed, "$.login.password", may_reveal=False)
        assert restored(document, changed)["login"]["password"] == CANARY


def test_a_kept_value_that_the_new_input_would_show_is_refused() -> None:
    note = f"log in with {CANARY}"
    pair = {"pair": [["Authorization", CANARY]]}
    for own, edited, path in [
        ({"name": "password", "value": CANARY}, {"name": "colour", "value": HIDDEN}, "$.value"),
        (pair, {"pair": [["Colour", HIDDEN]]}, "$.pair.0.1"),
        ({"password": CANARY, "note": note}, {"note": f"log in with {HIDDEN}"}, "$.note"),
        ({"password": CANARY, "note": note}, {"password": "new", "note": f"log in with {HIDDEN}"}, "$.note"),
    ]:
        for may_reveal in (True, False):
            assert_refused({"input": own}, edited, path, may_reveal=may_reveal)
    told = {"input": {"note": note}, "output": {"password": CANARY}}  # the new job has no output yet
    for may_reveal in (True, False):
        assert_refused(told, {"note": f"log in with {HIDDEN}"}, "$.note", may_reveal=may_reveal)


def test_an_item_keeps_its_hidden_values_only_where_neither_it_nor_their_number_changed() -> None:
    own = [{"user": "ann", "password": CANARY}, {"user": "bob", "password": "other"}]
    first, second = [{**each, "password": HIDDEN} for each in own]
    document = {"input": {"users": own, "to": "ann"}}

    assert restored(document, {"users": [first, second], "to": "bob"}) == {"users": own, "to": "bob"}
    one_typed = [{**first, "password": "new"}, second]
    assert restored(document, {"users": one_typed}) == {"users": [one_typed[0], own[1]]}
    for users in ([second], [second, first], [{**first, "user": "eve"}, second], [first, second, first]):
        assert_refused(document, {"users": users}, "$.users.0.password")
