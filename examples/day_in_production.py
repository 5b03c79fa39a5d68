"""A day of `trustdoctor serve` in fast motion: traffic, reviewers, noise, a new gate.

A gate that promises at most 5% errors among the accepted is put to work. Rows come by
the hour, and people answer the drawn ones two hours later. At noon the pictures get
worse, and the model stays sure of itself. The watch alarms. A new gate is calibrated
on rows that were reviewed since noon, decides beside the old one for an hour, and is
promoted. This script knows the truth of all rows, so it can say how many were wrong.

The rows are bundled: a DenseNet on the CIFAR-10 test set, from noon on with noise in
its logits. ``--page`` keeps the service up at the end, ``--pace 60`` lets an hour take
a minute, and ``--screenshots FOLDER`` looks at the page in Chromium.
It prints, with other figures each day::

    06:00 promised: at most 5% errors among the accepted, with confidence 0.9
    12:00 since 06:00: 9,000 rows, 86.4% accepted, of these wrong 3.7% [3.3%, 4.1%]
          the watch of version 1: nothing to report
    14:13 ALARM of accepted: observed 77.83% of 2,300 rows
          expected 85.03% to 87.77% of the rows accepted, as at calibration
    16:18 ALARM of risk: observed 9.84% of 193 rows
          promised at most 5% errors among the accepted
    19:00 since 12:00: 10,500 rows, 78.9% accepted, of these wrong 12.2% [11.5%, 13.0%]
          the watch of version 1: the promise no longer holds
    19:00 version 2 is calibrated on 1,541 of 2,014 reviewed rows
          among these version 1 has 11.8% wrong [10.0%, 13.7%]
    20:00 of 1,500 rows in its shadow both accept 806, version 1 alone 408
          version 2 is promoted
    24:00 since 20:00: 6,000 rows, 50.7% accepted, of these wrong 3.5% [2.9%, 4.2%]
          the watch of version 2: nothing to report
"""

import argparse
import hmac
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

import trustdoctor as td
from trustdoctor.demo import CLASSES, bundled_file

MORNING, NOON, EVENING, MIDNIGHT = 6, 12, 19, 24
ROWS, ROWS_PER_REQUEST = 1500, 100  # per hour, and per request
REVIEW_DELAY = 2  # hours that a row waits for its reviewer
REVIEWERS = ("ann", "ben", "eve")
SECRET = os.urandom(16).hex()


class Inbox(ThreadingHTTPServer):
    """Takes alarms, and believes those that are signed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.alarms: list[dict[str, str]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The address at which it listens."""
        return f"http://127.0.0.1:{self.server_port}/alarm"

    def has(self, test: str) -> bool:
        """Tell whether a test has alarmed."""
        return any(alarm["test"] == test for alarm in self.alarms)


class _Post(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        """Check who sent an alarm, and when; then keep it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        valid = is_signed(body, self.headers.get("Trustdoctor-Signature", ""))
        if valid:
            self.server.alarms.append(json.loads(body)["alarm"])
        self.send_response(204 if valid else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def is_signed(body: bytes, signature: str) -> bool:
    """Tell whether our service sent this within the last five minutes."""
    fields = dict(field.partition("=")[::2] for field in signature.split(","))
    stamp, signature_sent = fields.get("t", ""), fields.get("v1", "")
    if not stamp.isdigit() or abs(time.time() - int(stamp)) > 300:
        return False
    expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, "sha256")
    return hmac.compare_digest(signature_sent, expected.hexdigest())


@contextmanager
def serving(gate: td.Gate, webhook: str, folder: Path) -> Iterator[str]:
    """Start the service on a free port; stop it at the end."""
    gate.save(folder / "gate.json")
    options = ["--gate", "gate.json", "--port", "0", "--webhook", webhook]
    review = ["--review-rejected", "0.5", "--review-accepted", "0.2"]
    with (folder / "log.jsonl").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trustdoctor", "serve", *options, *review],
            cwd=folder,
            env=os.environ | {"TRUSTDOCTOR_WEBHOOK_SECRET": SECRET},
            stderr=log,
        )
    try:
        yield find_address(process, folder / "log.jsonl")
    finally:
        process.terminate()
        process.wait(60)


def find_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Return the service's address, which it writes into its log."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"page"' in line:
                return str(json.loads(line)["page"])
        time.sleep(0.05)
    raise SystemExit(log.read_text())


class Day:
    """Sends rows by the hour, lets people review them, and counts the wrong ones."""

    def __init__(
        self, client: td.Client, rows: td.Predictions, inbox: Inbox, pace: float
    ) -> None:
        self.client, self.rows, self.inbox, self.pace = client, rows, inbox, pace
        self.clock, self.rng = MORNING, np.random.default_rng(0)
        self.truth: dict[str, str] = {}
        self.decided: list[tuple[int, bool, bool]] = []  # hour, accepted, wrong
        self.began: dict[int, datetime] = {}

    def pass_until(self, hour: int) -> None:
        """Let rows come, and people answer, until an hour."""
        while self.clock < hour:
            self.began[self.clock] = datetime.now(UTC)
            with ThreadPoolExecutor(len(REVIEWERS)) as people:
                reviews = [people.submit(self.review, name) for name in REVIEWERS]
                self.send_rows()
            for review in reviews:
                review.result()
            self.clock += 1

    def send_rows(self) -> None:
        """Send the rows of an hour."""
        drawn = self.rng.integers(0, len(self.rows), ROWS)
        logits = self.rows.logits[drawn].astype(float)
        if self.clock >= NOON:
            logits += self.rng.normal(0, 4, logits.shape)
        ids = [f"{self.clock:02d}:{60 * n // ROWS:02d}/{n}" for n in range(ROWS)]
        names = [CLASSES[k] for k in self.rows.labels[drawn]]
        self.truth |= dict(zip(ids, names, strict=True))
        for n in range(0, ROWS, ROWS_PER_REQUEST):
            batch = slice(n, n + ROWS_PER_REQUEST)
            texts = [{"text": f"the picture of {row_id}"} for row_id in ids[batch]]
            for decision in self.client.decide(
                logits=logits[batch], ids=ids[batch], payloads=texts
            ):
                wrong = decision.predicted != self.truth[decision.id]
                self.decided.append((self.clock, decision.accepted, wrong))
            time.sleep(self.pace * ROWS_PER_REQUEST / ROWS)

    def review(self, name: str) -> None:
        """Answer the rows that have waited for long enough, the oldest first."""
        while leased := self.client.lease(reviewer=name, order="oldest", count=25):
            for row in leased:
                if self.is_due(row):
                    self.client.answer(row, self.truth[row.id])
                else:
                    self.client.release(row)
            if not self.is_due(leased[-1]):
                return

    def is_due(self, row: Any) -> bool:
        """Tell whether a row came early enough to be answered now."""
        return int(row.id[:2]) <= self.clock - REVIEW_DELAY

    def tell(self, *lines: str, at: str = "") -> None:
        """Print what happens, and when."""
        print(at or f"{self.clock:02d}:00", "\n      ".join(lines), flush=True)

    def tell_rates(self, first: int, last: int) -> None:
        """Print what really happened in some hours, and what the watch says of it."""
        hours, accepted, wrong = map(np.array, zip(*self.decided, strict=True))
        rows = (first <= hours) & (hours < last)
        errors = wrong[rows & accepted]
        low, high = td.clopper_pearson(int(errors.sum()), len(errors))
        watch = self.settled()["watch"]
        self.tell(
            f"since {first:02d}:00: {rows.sum():,} rows, {accepted[rows].mean():.1%} "
            f"accepted, of these wrong {errors.mean():.1%} [{low:.1%}, {high:.1%}]",
            f"the watch of version {watch['version']}: {watch['headline']}",
        )

    def settled(self) -> dict[str, Any]:
        """Return the status, once the watch has counted all labels."""
        start = datetime.now(UTC)

        def find() -> dict[str, Any] | None:
            status = self.client.status()
            is_new = datetime.fromisoformat(status["time"]) > start
            counted = status["watch"]["waiting"] == status["review"]["waiting"]
            return status if is_new and counted else None

        return wait_for(find)

    def tell_alarms(self) -> None:
        """Print the alarms, and in which hour of this day they came."""
        wait_for(lambda: self.inbox.has("risk"))
        for alarm in sorted(self.inbox.alarms, key=lambda alarm: alarm["at"]):
            clock_time = self.time_of(datetime.fromisoformat(alarm["at"]))
            observed, _, promised = alarm["words"].partition("; ")
            self.tell(f"ALARM of {alarm['test']}: {observed}", promised, at=clock_time)

    def time_of(self, at: datetime) -> str:
        """Return the time on the clock of this day."""
        hour = max(clock for clock, began in self.began.items() if began <= at)
        end = self.began.get(hour + 1, datetime.now(UTC))
        minute = 60 * (at - self.began[hour]) / (end - self.began[hour])
        return f"{hour:02d}:{int(minute):02d}"


def wait_for(find: Callable[[], Any]) -> Any:
    """Return the first result of `find` that is not empty, within a minute."""
    until = time.monotonic() + 60
    while not (result := find()):
        if time.monotonic() > until:
            message = "the service did not get there within a minute"
            raise SystemExit(message)
        time.sleep(0.2)
    return result


def live(day: Day, look: Callable[[str], None]) -> None:
    """Let the day pass."""
    client = day.client
    day.tell(f"promised: {client.status()['gate']['promise']}")
    day.pass_until(NOON)
    day.tell_rates(MORNING, NOON)
    look("noon")
    day.pass_until(EVENING)
    day.tell_alarms()
    day.tell_rates(NOON, EVENING)
    look("alarm")
    new = client.recalibrate(since=day.began[NOON], confidence=0.99)
    version, risk = new["version"], new["comparison"]["current"]["risk"]
    day.tell(
        f"version {version} is calibrated on {new['kept']:,} of {new['labelled']:,} "
        "reviewed rows",
        f"among these version 1 has {risk[0]:.1%} wrong [{risk[1]:.1%}, {risk[2]:.1%}]",
    )
    client.shadow(version)
    day.pass_until(EVENING + 1)
    shadow = day.settled()["shadow"]
    day.tell(
        f"of {shadow['rows']:,} rows in its shadow both accept {shadow['both']:,}, "
        f"version 1 alone {shadow['only_current']:,}",
        f"version {version} is promoted",
    )
    client.promote(version)
    day.pass_until(MIDNIGHT)
    day.tell_rates(EVENING + 1, MIDNIGHT)
    look("promoted")


def photographer(url: str, folder: Path) -> Callable[[str], None]:
    """Return a function that takes pictures of the page, wide and narrow."""
    from playwright.sync_api import sync_playwright

    def look(name: str) -> None:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
            for width in (1280, 360):
                page = browser.new_page(viewport={"width": width, "height": 2050})
                page.goto(url)
                page.wait_for_selector("#s-versions:not([hidden])")
                path = folder / f"serve-{name}-{width}.png"
                page.screenshot(path=path, full_page=True)
                if (name, width) == ("alarm", 1280):
                    page.screenshot(path=folder / "serve-live.png")
            browser.close()

    folder.mkdir(parents=True, exist_ok=True)
    return look


def main() -> None:
    """Calibrate on one half of the rows, and let the other half be the traffic."""
    parser = argparse.ArgumentParser(description="A day in fast motion.")
    parser.add_argument("--page", action="store_true", help="keep the service up")
    parser.add_argument("--pace", type=float, default=0.4, help="seconds of an hour")
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    predictions = td.read(bundled_file())
    order = np.random.default_rng(0).permutation(len(predictions))
    rows = td.Predictions.from_logits(
        predictions.logits[order], predictions.labels[order], class_names=CLASSES
    )
    gate = td.calibrate(rows[:5000], score="alpha", risk=0.05)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Inbox() as inbox,
        serving(gate, inbox.url, Path(scratch)) as url,
        td.Client(url) as client,
    ):
        folder = options.screenshots
        look = photographer(url, folder) if folder else lambda _name: None
        live(Day(client, rows[5000:], inbox, options.pace), look)
        if options.page:
            print(f"{url} is up until Ctrl-C")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(0.2)
        inbox.shutdown()


if __name__ == "__main__":
    main()
