import pytest
from endpoint_server import say, serving

from trustdoctor.adapters.endpoint import workers


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(say) as running:
        yield running


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between calls, which are not waited for."""
    pauses = []
    monkeypatch.setattr(workers, "_wait", lambda _stop, seconds: pauses.append(seconds))
    return pauses
