import subprocess
import sys

import numpy as np
import pytest

from trustdoctor.kernels import _native, digest, digests


@pytest.fixture(params=["C", "numpy"])
def _how(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(_native, "available", False)


@pytest.mark.usefixtures("_how")
def test_one_bit_anywhere_makes_another_digest(rng):
    """Also in the last bytes, which do not fill a step."""
    octets = rng.integers(0, 256, 101).astype(np.uint8)
    found = {digest(octets)}
    for at in range(octets.size):
        for bit in range(8):
            other = octets.copy()
            other[at] ^= 1 << bit
            found.add(digest(other))
    assert len(found) == 1 + 8 * octets.size


@pytest.mark.usefixtures("_how")
def test_the_order_of_rows_counts(rng):
    """Steps of 16 and of 32 bytes may not be exchanged unseen."""
    words = rng.normal(size=256)
    found = {digest(words)}
    for step in (1, 2, 4, 64):
        other = words.copy()
        other[:step], other[-step:] = words[-step:], words[:step]
        found.add(digest(other))
        found.add(digest(np.roll(words, step)))
    assert len(found) == 9


@pytest.mark.usefixtures("_how")
def test_type_and_shape_count_and_memory_does_not(rng):
    words = rng.normal(size=60)
    same = [words.copy(), np.repeat(words, 2)[::2]]
    others = [
        words.view(np.int64),
        words.reshape(6, 10),
        words[:-1],
        np.append(words, 0.0),
    ]
    assert {digest(word) for word in same} == {digest(words)}
    assert len({digest(words), *map(digest, others)}) == 5
    assert digest(words[:30], words[30:]) != digest(words[:31], words[31:])


@pytest.mark.usefixtures("_how")
def test_parts_for_several_threads_all_count(rng, monkeypatch):
    monkeypatch.setattr(digests, "_BLOCK_BYTES", 128)
    words = rng.normal(size=1000)
    found = {digest(words)}
    for at in range(0, 1000, 37):
        other = words.copy()
        other[at] += 1
        found.add(digest(other))
    assert len(found) == 1 + 28


def test_every_process_has_keys_of_its_own():
    if not _native.available:
        pytest.skip("there is no C kernel")
    code = (
        "import numpy as np; from trustdoctor.kernels import digest\n"
        "print(digest(np.zeros(9)).hex())"
    )
    command = [sys.executable, "-c", code]
    found = {subprocess.check_output(command) for _ in range(2)}
    assert len(found) == 2
