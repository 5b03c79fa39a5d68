"""Who may do what: tokens with roles, cookies of the page, hosts and origins."""

import hmac
import ipaddress
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe

from trustdoctor.errors import FileError, InputError
from trustdoctor.service.problems import ProblemError

ROLES = ("decide", "label", "admin")
"""Who decides sends rows; who labels also reviews and reads; an admin may all."""

VARIABLE = "TRUSTDOCTOR_TOKENS"
COOKIE = "trustdoctor"
SESSION = 12 * 3600
"""Seconds that a login lasts."""

SHORTEST = 20
"""Characters of a token at least: it is checked without delay."""

_MAY = {"decide": {"decide"}, "label": {"label", "read"}, "admin": {"admin"}}
_LINE = re.compile(r"(\w+)\s+sha256:([0-9a-f]{64})(?:\s+(\S.*))?\Z")


@dataclass(frozen=True)
class Token:
    """A token, of which only the hash is known."""

    role: str
    digest: bytes = field(repr=False)
    name: str = ""


def roles_for(task: str) -> list[str]:
    """Return the roles whose tokens allow a task.

    Examples
    --------
    >>> roles_for("read")
    ['label', 'admin']
    """
    return [role for role in ROLES if role == "admin" or task in _MAY[role]]


def new_token(role: str) -> tuple[str, str]:
    """Return a token, and the line that a file of tokens has for it.

    Examples
    --------
    >>> token, line = new_token("decide")
    >>> line == f"decide sha256:{sha256(token.encode()).hexdigest()}"
    True
    """
    _check_role(role)
    token = f"td_{token_urlsafe(32)}"
    return token, f"{role} sha256:{sha256(token.encode()).hexdigest()}"


def _check_role(role: str) -> None:
    if role not in ROLES:
        message = f"expected a role out of {', '.join(ROLES)}, got {role!r}."
        raise InputError(message)


def read_tokens(path: str | Path) -> list[Token]:
    """Read a file of tokens: one line each, ``ROLE sha256:HEX NAME``."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the tokens in {path}: {error}."
        raise FileError(message) from error
    out = []
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        found = _LINE.match(text)
        if found is None:
            message = (
                f"expected ROLE sha256:HEX in line {number} of {path}, got something "
                "else. trustdoctor serve --new-token ROLE prints such a line."
            )
            raise FileError(message)
        _check_role(found[1])
        out.append(Token(found[1], bytes.fromhex(found[2]), found[3] or ""))
    if not out:
        message = f"expected tokens in {path}, got none. Add a line, or leave it out."
        raise FileError(message)
    return out


def tokens_from(environment: Mapping[str, str] = os.environ) -> list[Token]:
    """Read tokens from the environment: ``decide=TOKEN,admin=TOKEN``."""
    out = []
    for one in environment.get(VARIABLE, "").split(","):
        role, sign, token = one.strip().partition("=")
        if not role:
            continue
        if not sign or len(token) < SHORTEST:
            message = (
                f"expected {VARIABLE} as ROLE=TOKEN,ROLE=TOKEN with tokens of "
                f"{SHORTEST} characters or more, got something else."
            )
            raise InputError(message)
        _check_role(role)
        out.append(Token(role, sha256(token.encode()).digest()))
    return out


class Access:
    """Checks every request before anything of it is read.

    Attributes
    ----------
    tokens : list of Token
        Without any, everything is open to whoever reaches a loopback address.
    hosts : set of str
        The names that the service goes by.
    """

    def __init__(
        self, tokens: Iterable[Token] = (), hosts: Iterable[str] = (), secret: str = ""
    ) -> None:
        self.tokens = list(tokens)
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self._secret = secret.encode()
        self._good_hosts: set[bytes] = set()

    def check(self, headers: list[tuple[bytes, bytes]], task: str | None) -> str:
        """Return the role of whoever asks, or refuse them; None is for everybody."""
        own = dict(headers)
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            message = f"expected one Host header, got {len(hosts)}."
            raise ProblemError(400, message)
        self.check_host(hosts[0], own.get(b"origin"))
        if task is None or not self.tokens:
            return "admin"
        token, cookie = own.get(b"authorization"), own.get(b"cookie")
        found = self._bearer(token) if token else self._session(cookie)
        if found is None:
            message = (
                "expected a token, as the header Authorization: Bearer TOKEN, got "
                f"{'one that is not known' if token else 'none'}. Ask whoever runs the "
                "service for one; tokens in addresses are not read."
            )
            raise ProblemError(401, message)
        if found.role != "admin" and task not in _MAY[found.role]:
            role = "label" if task == "read" else task
            message = (
                f"expected a token that may do this, got one for {found.role!r}. Use "
                f"one with the role {role!r}."
            )
            raise ProblemError(403, message)
        return found.role

    def check_host(self, host: bytes, origin: bytes | None) -> None:
        """Refuse names that are not ours, and pages of others."""
        if host not in self._good_hosts:
            if not self._is_ours(host):
                message = (
                    "expected a host that is served here, got "
                    f"{_shown(host)}. Add it by --allow-host NAME."
                )
                raise ProblemError(421, message)
            if len(self._good_hosts) < 1000:
                self._good_hosts.add(host)
        if origin is not None and origin not in (b"http://" + host, b"https://" + host):
            message = (
                "expected requests from pages of this service, got one from "
                f"{_shown(origin)}."
            )
            raise ProblemError(403, message)

    def _is_ours(self, host: bytes) -> bool:
        """Tell whether a host is known; an address cannot be a name of others."""
        text = host.decode("latin-1").lower()
        name = re.sub(r":\d{1,5}\Z", "", text)
        if name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return bool(self.tokens) or address.is_loopback

    def _bearer(self, header: bytes) -> Token | None:
        kind, _, token = header.partition(b" ")
        if kind.lower() != b"bearer" or not token:
            return None
        return self._find(sha256(token.strip()).digest())

    def _find(self, digest: bytes) -> Token | None:
        found = None
        for one in self.tokens:  # all of them: how long it takes tells nothing
            if hmac.compare_digest(one.digest, digest):
                found = one
        return found

    def log_in(self, token: str) -> str | None:
        """Return a cookie for a token; None where it is not known."""
        found = self._find(sha256(token.strip().encode()).digest())
        if found is None or found.role == "decide":
            return None
        until = str(int(time.time()) + SESSION)
        content = f"{found.digest.hex()[:32]}.{until}"
        return f"{content}.{self._mark(content)}"

    def _mark(self, content: str) -> str:
        return hmac.new(self._secret, content.encode(), "sha256").hexdigest()

    def _session(self, cookie: bytes | None) -> Token | None:
        """Return the token that a cookie stands for, while it is good."""
        if cookie is None:
            return None
        pairs = (
            one.strip().partition("=") for one in cookie.decode("latin-1").split(";")
        )
        value = next((value for name, _, value in pairs if name == COOKIE), "")
        content, _, mark = value.rpartition(".")
        start, _, until = content.partition(".")
        good = hmac.compare_digest(mark.encode(), self._mark(content).encode())
        if not good or not until.isdigit() or int(until) < time.time():
            return None
        return next((t for t in self.tokens if t.digest.hex()[:32] == start), None)


def _shown(value: bytes) -> str:
    return ascii(value.decode("latin-1"))[:80]


def require_loopback(host: str, tokens: list[Token]) -> None:
    """Refuse to listen to others than this machine without tokens."""
    if tokens or host in ("localhost",):
        return
    try:
        if ipaddress.ip_address(host.strip("[]")).is_loopback:
            return
    except ValueError:
        pass
    message = (
        f"expected tokens to listen on {host}, got none: without them everybody there "
        "could decide and promote. Give --tokens FILE (trustdoctor serve --new-token "
        "admin makes one), or listen on 127.0.0.1."
    )
    raise InputError(message)
