"""The guarded model of examples/browser, in a real browser."""

import functools
import http.server
import importlib.util
import json
import shutil
import subprocess
import threading

import numpy as np
import onnxruntime
import pytest


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The files of onnxruntime-web, from npm."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to fetch onnxruntime-web with")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--silent", "--ignore-scripts", "onnxruntime-web"]
    try:
        subprocess.run(
            command, cwd=folder, check=True, timeout=120, capture_output=True
        )
    except (subprocess.SubprocessError, OSError):
        pytest.skip("npm cannot fetch onnxruntime-web here")
    return folder / "node_modules" / "onnxruntime-web" / "dist"


@pytest.fixture
def address(runtime, root, tmp_path):
    """The example, built and served."""
    path = root / "examples" / "browser" / "build.py"
    spec = importlib.util.spec_from_file_location("build", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.build(tmp_path, runtime)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Print nothing."""

    handler = functools.partial(Quiet, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.more  # it fetches a package
def test_a_browser_decides_as_the_server_does(address, tmp_path, browser):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_function(
        "document.getElementById('status').textContent !== 'Loading.'"
    )
    assert page.locator("#status").inner_text().endswith("rows answered.")
    answers = page.evaluate("window.answers")
    page.close()
    rows = np.array(json.loads((tmp_path / "rows.json").read_text()), np.float32)
    session = onnxruntime.InferenceSession(
        tmp_path / "guarded.onnx", providers=["CPUExecutionProvider"]
    )
    doubt, accepted = session.run(["doubt", "accepted"], {"X": rows})
    np.testing.assert_allclose(answers["doubt"], doubt, rtol=1e-3, atol=1e-3)
    assert np.mean(np.array(answers["accepted"]) == accepted) > 0.99
