"""Who may do what: tokens with roles, cookies of sessions, hosts and origins."""

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
"""decide: send rows; label: label, review, read; admin: everything."""

VARIABLE = "TRUSTDOCTOR_TOKENS"
COOKIE = "trustdoctor"
SESSION = 12 * 3600
"""Seconds from a login to the next."""

SHORTEST = 20
"""Characters of a token. Attempts are not slowed down, so it must not be guessable."""

KNOWN_HOSTS = 1000
"""Host headers that are remembered as good, so that no client can fill the memory."""

_TASKS = {"decide": {"decide"}, "label": {"label", "read"}, "admin": {"admin"}}
_LINE = re.compile(r"(\w+)\s+sha256:([0-9a-f]{64})(?:\s+(\S.*))?\Z")


@dataclass(frozen=True)
class Token:
    """A token: its hash, not the token itself."""

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
    return [role for role in ROLES if role == "admin" or task in _TASKS[role]]


def new_token(role: str) -> tuple[str, str]:
    """Return a token, and its line in a file of tokens.

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
    tokens = []
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        fields = _LINE.match(text)
        if fields is None:
            message = (
                f"expected ROLE sha256:HEX in line {number} of {path}, got something "
                "else. trustdoctor serve --new-token ROLE prints such a line."
            )
            raise FileError(message)
        _check_role(fields[1])
        tokens.append(Token(fields[1], bytes.fromhex(fields[2]), fields[3] or ""))
    if not tokens:
        message = f"expected tokens in {path}, got none. Add a line, or leave it out."
        raise FileError(message)
    return tokens


def tokens_from(environment: Mapping[str, str] = os.environ) -> list[Token]:
    """Read tokens from the environment: ``decide=TOKEN,admin=TOKEN``."""
    tokens = []
    for assignment in environment.get(VARIABLE, "").split(","):
        role, _, token = assignment.strip().partition("=")
        if not role:
            continue
        if len(token) < SHORTEST:
            message = (
                f"expected {VARIABLE} as ROLE=TOKEN,ROLE=TOKEN with tokens of "
                f"{SHORTEST} characters or more, got something else."
            )
            raise InputError(message)
        _check_role(role)
        tokens.append(Token(role, sha256(token.encode()).digest()))
    return tokens


class Access:
    """Checks every request before its body is read.

    Attributes
    ----------
    tokens : list of Token
        Without any, every process on this machine may do everything.
    hosts : set of str
        The names that the service goes by.
    """

    def __init__(
        self, tokens: Iterable[Token] = (), hosts: Iterable[str] = (), secret: str = ""
    ) -> None:
        self.tokens = list(tokens)
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self._secret = secret.encode()
        self._known_hosts: set[bytes] = set()

    def check(self, headers: list[tuple[bytes, bytes]], task: str | None) -> str:
        """Return the role of a request, or refuse it.

        A task of None is for everybody.
        """
        by_name = dict(headers)
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:  # RFC 9112, section 3.2
            message = f"expected one Host header, got {len(hosts)}."
            raise ProblemError(400, message)
        self.check_host(hosts[0], by_name.get(b"origin"))
        if task is None or not self.tokens:
            return "admin"
        header, cookie = by_name.get(b"authorization"), by_name.get(b"cookie")
        token = self._bearer_token(header) if header else self._session_token(cookie)
        if token is None:
            message = (
                "expected a token, as the header Authorization: Bearer TOKEN, got "
                f"{'an unknown one' if header else 'none'}. Ask whoever runs the "
                "service for one; tokens in addresses are not read."
            )
            raise ProblemError(401, message)
        if token.role != "admin" and task not in _TASKS[token.role]:
            role = "label" if task == "read" else task
            message = (
                f"expected a token that may do this, got one for {token.role!r}. Use "
                f"one with the role {role!r}."
            )
            raise ProblemError(403, message)
        return token.role

    def check_host(self, host: bytes, origin: bytes | None) -> None:
        """Refuse a request under another name, or from another site's page.

        A page of any site can send requests to this machine. If its name is bound to
        127.0.0.1 (DNS rebinding), the browser even lets it read the answers, but the
        Host header still has that name. Other pages betray themselves by their Origin.
        """
        if host not in self._known_hosts:
            if not self._is_own_host(host):
                message = (
                    "expected a host that is served here, got "
                    f"{_shown(host)}. Add it by --allow-host NAME."
                )
                raise ProblemError(421, message)
            if len(self._known_hosts) < KNOWN_HOSTS:
                self._known_hosts.add(host)
        if origin is not None and origin not in (b"http://" + host, b"https://" + host):
            message = (
                "expected requests from pages of this service, got one from "
                f"{_shown(origin)}."
            )
            raise ProblemError(403, message)

    def _is_own_host(self, host: bytes) -> bool:
        """Tell whether a host is this service: by name, or by an address.

        Nobody can bind an address to another one, so with tokens any will do.
        """
        text = host.decode("latin-1").lower()
        name = re.sub(r":\d{1,5}\Z", "", text)
        if name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return bool(self.tokens) or address.is_loopback

    def _bearer_token(self, header: bytes) -> Token | None:
        scheme, _, text = header.partition(b" ")
        if scheme.lower() != b"bearer" or not text:
            return None
        return self._token_of(sha256(text.strip()).digest())

    def _token_of(self, digest: bytes) -> Token | None:
        match = None
        for token in self.tokens:  # all of them: how long it takes tells nothing
            if hmac.compare_digest(token.digest, digest):
                match = token
        return match

    def log_in(self, text: str) -> str | None:
        """Return a session's cookie for a token; None if the token may not read.

        The cookie is signed with a secret of the store, so it is good at every replica
        and after a restart, and none of them has to remember it.
        """
        token = self._token_of(sha256(text.strip().encode()).digest())
        if token is None or token.role == "decide":
            return None
        expiry = str(int(time.time()) + SESSION)
        content = f"{token.digest.hex()[:32]}.{expiry}"
        return f"{content}.{self._signature(content)}"

    def _signature(self, content: str) -> str:
        return hmac.new(self._secret, content.encode(), "sha256").hexdigest()

    def _session_token(self, cookie: bytes | None) -> Token | None:
        """Return the token that a session was given for, until it expires."""
        if cookie is None:
            return None
        pairs = (
            pair.strip().partition("=") for pair in cookie.decode("latin-1").split(";")
        )
        value = next((value for name, _, value in pairs if name == COOKIE), "")
        content, _, signature = value.rpartition(".")
        digest, _, expiry = content.partition(".")
        is_ours = hmac.compare_digest(
            signature.encode(), self._signature(content).encode()
        )
        if not is_ours or not expiry.isdigit() or int(expiry) < time.time():
            return None
        # A token that was taken away takes its sessions with it.
        return next((t for t in self.tokens if t.digest.hex()[:32] == digest), None)


def _shown(value: bytes) -> str:
    return ascii(value.decode("latin-1"))[:80]


def require_loopback(host: str, tokens: list[Token]) -> None:
    """Refuse to listen to other machines without tokens."""
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
