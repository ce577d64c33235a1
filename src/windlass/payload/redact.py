r"""Which names are secret, and where secrets are in free text: `password=…`, `"token": "…"`, URLs, known shapes.

`policy/redaction.py` hides secrets in documents with it. Names are compared by words, because `author` is no `auth`.
In doubt a value is hidden: an admin can reveal it, and a secret that was shown stays known.

Texts may be hostile and long. Each pattern is linear: it starts only where a run of letters starts, its repetitions are
possessive or have a bound, and the search goes on behind what was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[redacted]"
TOKEN = "token"
NAMES = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", TOKEN, "jwt", "bearer", "otp", "totp", "pin"),
    *("authorization", "authorisation", "auth", "oauth", "credential", "creds", "cookie", "csrf", "xsrf", "sig"),
    *("api key", "access key", "private key", "encryption key", "signing key", "master key", "account key", "ssh key"),
    *("session id", "sessid", "session key", "signature", "ssn", "social security", "card number", "credit card"),
    *("cvv", "cvc"),
)
"""The names that are always secret; the setting `redact` has further ones."""
CONTAINED = 6  # letters: a longer name is also found inside of words, such as `dbpassword`
INNOCENT = frozenset({"secretary", "secretaries", "secretariat"})
COUNTING = frozenset(
    [
        "cached",
        "completion",
        "count",
        "input",
        "left",
        "limit",
        "max",
        "maximum",
        "min",
        "minimum",
        "num",
        "number",
        "output",
        "per",
        "prompt",
        "reasoning",
        "remaining",
        "sum",
        "total",
        "usage",
        "used",
    ]
)
"""Beside `token`, these words make a count of tokens, as language models use them. Its numbers stay visible."""

CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WORD = re.compile(r"[^\W\d_]+")
NUMBER = re.compile(r"-?\d[\d_.,]*", re.ASCII)

PAIR = re.compile(
    r"""
    (?<![\w.-]) (?P<name> (?: [\w.-]++[ ] )? [\w.-]++ )  # one word or two: `API key: …`
    (?P<join> \\{0,4}["'`]?[)\]]? [ \t]{0,4}+ (?: => | := | !?={1,3} | : | >(?=[^<\s]) ) [ \t]{0,4}+ | [ ](?=["'`]) )
    """,
    re.VERBOSE,
)
FLAG = re.compile(r"""(?<![\w-])--(?P<name>[\w-]++)(?P<join>["']?,?[ ]["']?)(?=[^\s"'-])""")
QUOTED = re.compile(
    # The end may have been cut off with its quote.
    r"""[bBrRuUfF]{0,2}(?:"(?:[^"\\]++|\\.)*+"?|'(?:[^'\\]++|\\.)*+'?|`[^`]*+`?)|\\{1,4}"[^"]*+"?|\\{1,4}'[^']*+'?""",
    re.DOTALL,
)
BARE = re.compile(r"""(?:(?i:bearer|basic|digest|token|apikey|negotiate)[ ]{1,4}+)?[^\s"'`&<]++""")
AGAIN = re.compile(r"[ \t]{0,4}+={1,3}[ \t]{0,4}+(?=\S)")  # `password: str = "…"` in a line of a traceback
LINE = re.compile(r"[^\r\n]*")
HEADERS = ("authori", "cookie")  # headers with several words
CLOSING = ",;.)]}"
BRACKET_OR_QUOTE = re.compile(r"""[()\[\]{}]|"(?:[^"\\]++|\\.)*+"?|'(?:[^'\\]++|\\.)*+'?""", re.DOTALL)

URL_USER = re.compile(
    # Up to the last @ of the host; or up to the first @ when the password has a bare slash. A port is no password.
    r"""(?<=://)(?:[^\s/?#"'<>]*@|[^\s/?#@:"'<>\[]{0,256}+:(?!\d{1,5}(?:[/?#\s]|$))[^\s"'<>@]{1,512}+@)"""
)
SHAPES = re.compile(
    r"""
      (?<![\w-]) eyJ[\w-]{5,}+ \. [\w-]{5,}+ (?: \.[\w-]*+ ){0,3}  # a JSON web token
    | (?<![^\W_]) (?: wl_ | github_pat_ | glpat- | sk- | sk_live_ | rk_live_ | whsec_ | xox[a-z]- ) [\w-]{16,}+
    | (?<![^\W_]) (?: gh[pousr]_ | hf_ | npm_ ) [A-Za-z0-9]{16,}+
    | (?<!\w) (?: AKIA | ASIA ) [A-Z0-9]{16} (?!\w) | (?<!\w) AIza [\w-]{30,}+
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY----- (?: (?!-----END) . )*+ (?: -----END[ ][A-Z ]{0,40}----- )?
    | (?<=(?i:bearer)[ ]) [\w.~+/=-]{8,}+ | (?<=(?i:basic)[ ]) (?=[A-Za-z]*+[0-9+/=]) [\w+/=]{8,}+
    """,
    re.VERBOSE | re.DOTALL,
)


class Secrets:
    """Decides which names are secret: `Secrets(["iban"]).hides("customerIban")`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = {tuple(words_of(name)) for name in names} - {()}
        self._others = given | {tuple(name.split()) for name in NAMES if name != TOKEN}

    def hides(self, name: str) -> bool:
        """Whether values of this name are hidden: of `db_password`, `apiKey`, `X-Auth-Token`; not of `author`."""
        words = words_of(name)
        return words[-1:] == ["pass"] or _has_token(words) or _contain(words, self._others)

    def counts(self, name: str) -> bool:
        """Whether a hidden name is a count of tokens, such as `max_tokens`: its numbers are no secrets."""
        words = words_of(name)
        counted = "tokens" in words or not COUNTING.isdisjoint(words)
        return counted and _has_token(words) and not _contain(words, self._others)

    def text(self, text: str) -> str:
        """A text without the secrets that can be recognised: `text("password=hunter2")` is `password=[redacted]`."""
        text = SHAPES.sub(HIDDEN, URL_USER.sub(f"{HIDDEN}@", text))
        return self._hide_pairs(FLAG, self._hide_pairs(PAIR, text))

    def _hide_pairs(self, pattern: re.Pattern[str], text: str) -> str:
        """Names with their values. The search goes on behind the name, or behind a value that is hidden."""
        pieces: list[str] = []
        kept = place = 0
        while (pair := pattern.search(text, place)) is not None:
            place = start = pair.end()
            if not self.hides(pair["name"]):
                continue
            end = _value_end(text, start, pair)
            shown = self.counts(pair["name"]) and NUMBER.fullmatch(text[start:end].strip("\"'")) is not None
            if end > start and not shown:
                pieces += (text[kept:start], HIDDEN)
                kept = place = end
        return "".join((*pieces, text[kept:])) if pieces else text


def words_of(name: str) -> list[str]:
    """The words of a name, split at capitals and at all that is no letter: `["x", "auth", "token"]`."""
    return [word.casefold() for word in WORD.findall(CAMEL.sub("_", name))]


def _has_token(words: list[str]) -> bool:
    return any(word.endswith((TOKEN, f"{TOKEN}s")) for word in words)


def _contain(words: list[str], names: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of the names is among the words: a long one anywhere in them, a short one as whole words."""
    usual = [word for word in words if word not in INNOCENT]
    joined, spaced, singular = "".join(usual), f" {' '.join(usual)} ", {word.removesuffix("s") for word in usual}
    for name in names:
        text = "".join(name)
        if len(text) >= CONTAINED and text in joined:
            return True
        if text in singular or f" {' '.join(name)} " in spaced or text == joined:
            return True
    return False


def _value_end(text: str, start: int, pair: re.Match[str]) -> int:
    """Where the value ends that starts here: behind its quote, its bracket, its line (of a header) or its word."""
    name = pair["name"].casefold()
    if pair["join"].startswith(":") and any(header in name for header in HEADERS):
        line = LINE.match(text, start)
        if line is not None and QUOTED.match(text, start) is None:
            return line.end()
    if pair["join"].endswith(">") and "=" not in pair["join"]:  # `<password>…</password>`
        closed = text.find("<", start)
        return closed if closed >= 0 else len(text)
    end = _one_value_end(text, start)
    while end > start and (again := AGAIN.match(text, end)) is not None:
        end = _one_value_end(text, again.end())
    return end


def _one_value_end(text: str, start: int) -> int:
    if text[start : start + 1] in ("(", "[", "{"):
        return _bracket_end(text, start)
    quoted = QUOTED.match(text, start)
    if quoted is not None:
        return quoted.end()
    bare = BARE.match(text, start)
    if bare is None:
        return start
    return start + len(bare[0].rstrip(CLOSING))


def _bracket_end(text: str, start: int) -> int:
    """Behind the bracket that closes the one at the start; the end of a text that was cut."""
    depth = 0
    for found in BRACKET_OR_QUOTE.finditer(text, start):
        depth += (found[0] in ("(", "[", "{")) - (found[0] in (")", "]", "}"))
        if depth == 0:
            return found.end()
    return len(text)
