import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trustdoctor.errors import FileError, InputError
from trustdoctor.reproduce.local_model import load_model

SOURCE = """
import torch
from torch import nn

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.2, 0.1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 3), nn.Linear(3, 2)


def needs(x):
    return x


def number():
    return 3
"""


@pytest.fixture
def files(tmp_path):
    source = tmp_path / "net.py"
    source.write_text(SOURCE)
    scope = {}
    exec(compile(SOURCE, "net", "exec"), scope)
    torch.manual_seed(0)
    save_file(scope["Net"]().state_dict(), tmp_path / "tiny.safetensors")
    save_file(scope["Flat"]().state_dict(), tmp_path / "flat.safetensors")
    return source, tmp_path / "tiny.safetensors"


def test_a_model_comes_from_its_two_files(files, rng):
    source, weights = files
    local = load_model(f"{source}:Net", weights)
    assert local.name == "tiny"
    assert local.scale == pytest.approx([5, 5, 10])
    assert local.blocks() == ("stages.0", "stages.2")
    assert not local.model.training
    pixels = rng.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    x = local.inputs(pixels)
    expected = (pixels[3, 1, 2] / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.1]
    assert x[3, :, 1, 2].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    sizes = [len(y) for _, y in local.batches(pixels, np.arange(5), 2)]
    assert sizes == [2, 2, 1]
    before = local.digest()
    with torch.no_grad():
        local.model.head.bias[0] += 1
    assert local.digest() != before


def test_a_flat_model_has_its_layers_as_blocks(files):
    source, weights = files
    flat = load_model(f"{source}:Flat", weights.with_name("flat.safetensors"))
    assert flat.blocks() == ("first",)


def test_mistakes_are_named(files, tmp_path):
    source, weights = files
    with pytest.raises(InputError, match=r"FILE\.py:NAME"):
        load_model(str(source), weights)
    with pytest.raises(InputError, match="--weights"):
        load_model(f"{source}:Net", None)
    for name in ("Missing", "needs", "number"):
        with pytest.raises(InputError, match=name):
            load_model(f"{source}:{name}", weights)
    with pytest.raises(InputError, match="do not fit"):
        load_model(f"{source}:Flat", weights)
    with pytest.raises(FileError, match="safetensors"):
        load_model(f"{source}:Net", source)
    with pytest.raises(FileError, match="cannot run"):
        load_model(f"{tmp_path / 'none.py'}:Net", weights)
    source.write_text("1 / 0")
    with pytest.raises(FileError, match="ZeroDivisionError"):
        load_model(f"{source}:Net", weights)


def test_weights_are_safetensors_in_a_regular_file(files, tmp_path):
    source, weights = files
    torch.save({"head.bias": torch.zeros(3)}, tmp_path / "w.pt")
    os.mkfifo(tmp_path / "pipe")
    content = weights.read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(content[:-8])
    (tmp_path / "long.safetensors").write_bytes(content + bytes(8))
    (tmp_path / "head.safetensors").write_bytes(b"\xff" * 8 + content[8:])
    for name in ("w.pt", "cut.safetensors", "long.safetensors", "head.safetensors"):
        with pytest.raises(FileError, match="as safetensors"):
            load_model(f"{source}:Net", tmp_path / name)
    for name in ("pipe", "none.safetensors"):
        with pytest.raises(FileError, match="there is no file"):
            load_model(f"{source}:Net", tmp_path / name)
