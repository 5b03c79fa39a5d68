import subprocess
import sys

BLOCK = """
import sys
sys.modules["torch"] = None
sys.modules["safetensors"] = None
import trustdoctor as td
"""


def test_without_torch_the_pip_line_is_named():
    code = BLOCK + "import trustdoctor.adapters.torch"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "MissingPackageError: the torch adapter needs PyTorch, which" in run.stderr
    assert 'pip install "trustdoctor[torch]"' in run.stderr


def test_without_safetensors_the_pip_line_is_named(tmp_path):
    code = BLOCK + "td.SIRC(0.0, 1.0, 2).save('x')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert 'pip install "trustdoctor[sklearn]"' in run.stderr
