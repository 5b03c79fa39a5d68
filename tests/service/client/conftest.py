from types import SimpleNamespace

import pytest
from stub_service import serving

from trustdoctor.service.client import Client, transport


@pytest.fixture
def service():
    with serving() as running:
        yield running


@pytest.fixture
def client(service):
    with Client(service.url) as connected:
        yield connected


@pytest.fixture
def pauses(monkeypatch):
    """The pauses, which are not waited for."""
    delays = []
    # Not time.sleep itself: threads that other tests left would be counted.
    monkeypatch.setattr(transport, "time", SimpleNamespace(sleep=delays.append))
    return delays
