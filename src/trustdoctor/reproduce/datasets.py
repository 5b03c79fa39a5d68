"""The paper's data sets, in the file formats in which they are published.

Nothing is downloaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trustdoctor.errors import FileError, InputError
from trustdoctor.reproduce.formats import (
    Examples,
    Reader,
    cifar_binary,
    cifar_pickles,
    read_amazon,
    read_folder,
    read_house_numbers,
    read_idx,
    read_imdb,
    read_parquet,
    read_svhn,
    read_tiny_imagenet,
)


@dataclass(frozen=True)
class Dataset:
    """A data set of the paper.

    Attributes
    ----------
    name, title : str
        On the command line, and in print.
    readers : dict of str to reader
        What its file or folder is called, and what reads it.
    rows : dict of str to int
        How many rows each split has, if that is fixed.
    archives : tuple of str
        What it is downloaded as.
    like : str
        Which set of the paper it was made like, if it is not that very one.
    """

    name: str
    title: str
    readers: dict[str, Reader]
    rows: dict[str, int]
    archives: tuple[str, ...] = ()
    like: str = ""

    def where(self, folder: str | Path, split: str = "test") -> str:
        """Say where the data set belongs."""
        names = " or ".join(
            str(Path(folder) / _spelled(name, split)) for name in self.readers
        )
        title = self.title if split == "test" else f"{self.title} ({split})"
        return f"data not present: put {title} at {names}"

    def locate(self, folder: str | Path, split: str = "test") -> Path | None:
        """Return the data set's path, or None if it is not in the folder."""
        for name in self.readers:
            for path in places(Path(folder), _spelled(name, split)):
                return path
        return None

    def load(
        self, folder: str | Path, split: str = "test", *, rows: int | None = None
    ) -> Examples:
        """Read a split; it must have `rows` rows, by default those of the whole set."""
        for name, read in self.readers.items():
            for path in places(Path(folder), _spelled(name, split)):
                examples = read(path, split)
                _complete(path, len(examples), rows or self.rows.get(split))
                return examples
        for name in self.archives:
            for path in places(Path(folder), name):
                message = f"{path} is still packed. Unpack it in its folder."
                raise FileError(message)
        message = f"{self.where(folder, split)}."
        raise FileError(message)


def places(folder: Path, name: str) -> Iterator[Path]:
    """Yield the paths called `name`, in the folder or one folder further down."""
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        message = f"cannot read the folder {folder}: {error.strerror}."
        raise FileError(message) from error
    for parent in (folder, *inner):
        if (parent / name).exists():
            yield parent / name


def _spelled(name: str, split: str) -> str:
    """Return a file's name; only the validation rows of some test sets have labels."""
    return name.format(split=split, labelled="val" if split == "test" else split)


def _complete(path: Path, n: int, expected: int | None) -> None:
    if expected is not None and n != expected:
        message = (
            f"{path} is not the whole data set: expected {expected:,} rows, found "
            f"{n:,}. Download it again."
        )
        raise FileError(message)


_TRAIN = [f"data_batch_{i}" for i in range(1, 6)]

DATASETS: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        Dataset(
            "cifar10",
            "CIFAR-10",
            {
                "cifar-10-batches-py": cifar_pickles(
                    {"test": ["test_batch"], "train": _TRAIN}, b"labels"
                ),
                "cifar-10-batches-bin": cifar_binary(
                    {
                        "test": ["test_batch.bin"],
                        "train": [f"{n}.bin" for n in _TRAIN],
                    },
                    0,
                    1,
                ),
                "cifar10-{split}.parquet": read_parquet,
            },
            {"test": 10_000, "train": 50_000},
            ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
        ),
        Dataset(
            "cifar100",
            "CIFAR-100",
            {
                "cifar-100-python": cifar_pickles(
                    {"test": ["test"], "train": ["train"]}, b"fine_labels"
                ),
                "cifar-100-binary": cifar_binary(
                    {"test": ["test.bin"], "train": ["train.bin"]}, 1, 2
                ),
                "cifar100-{split}.parquet": read_parquet,
            },
            {"test": 10_000, "train": 50_000},
            ("cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
        ),
        Dataset(
            "tinyimagenet",
            "TinyImageNet",
            {
                "tiny-imagenet-200": read_tiny_imagenet,
                "tinyimagenet-{labelled}.parquet": read_parquet,
            },
            {"test": 10_000},
            ("tiny-imagenet-200.zip",),
        ),
        Dataset(
            "svhn",
            "SVHN",
            {
                "{split}_32x32.mat": read_svhn,
                "{split}/digitStruct.mat": read_house_numbers,
                "svhn-{split}.parquet": read_parquet,
            },
            {"test": 26_032, "train": 73_257},
            ("test.tar.gz",),
        ),
        Dataset(
            "amazon-fashion",
            "Amazon Fashion",
            {
                "AMAZON_FASHION_5.json.gz": read_amazon,
                "AMAZON_FASHION_5.json": read_amazon,
                "AMAZON_FASHION.json.gz": read_amazon,
            },
            {},
        ),
        Dataset(
            "amazon-software",
            "Amazon Software",
            {
                "Software_5.json.gz": read_amazon,
                "Software_5.json": read_amazon,
                "Software.json.gz": read_amazon,
            },
            {},
        ),
        Dataset(
            "imdb",
            "IMDb",
            {"aclImdb": read_imdb, "imdb.parquet": read_parquet},
            {"test": 25_000, "train": 25_000},
            ("aclImdb_v1.tar.gz",),
        ),
    )
}
"""The seven data sets of the paper's Table 1."""

OUT_SETS: dict[str, Dataset] = {
    entry.name: entry
    for entry in (
        Dataset("isun", "iSUN", {"iSUN": read_folder}, {}, ("iSUN.tar.gz",)),
        Dataset(
            "lsun-crop", "LSUN (crop)", {"LSUN": read_folder}, {}, ("LSUN.tar.gz",)
        ),
        Dataset(
            "lsun-resize",
            "LSUN (resize)",
            {"LSUN_resize": read_folder},
            {},
            ("LSUN_resize.tar.gz",),
        ),
        Dataset(
            "tiny-crop",
            "Tiny (crop)",
            {"Imagenet": read_folder},
            {},
            ("Imagenet.tar.gz",),
        ),
        Dataset(
            "tiny-resize",
            "Tiny (resize)",
            {"Imagenet_resize": read_folder},
            {},
            ("Imagenet_resize.tar.gz",),
        ),
        *(
            Dataset(
                f"tinyimagenet-{crop_or_resize}",
                f"Tiny ({crop_or_resize}), made anew",
                {f"ood-tinyimagenet-{crop_or_resize}.parquet": read_parquet},
                {},
                like=f"tiny-{crop_or_resize}",
            )
            for crop_or_resize in ("crop", "resize")
        ),
        Dataset("places", "Places", {"ood-places.parquet": read_parquet}, {}),
        Dataset(
            "fashion-mnist",
            "Fashion-MNIST",
            {
                "fashion-mnist": read_idx,  # as Debian calls it
                "FashionMNIST/raw": read_idx,  # as torchvision lays it out
                "FashionMNIST": read_idx,
            },
            {"test": 10_000, "train": 60_000},
        ),
        Dataset(
            "mnist",
            "MNIST",
            {"mnist": read_idx, "MNIST/raw": read_idx, "MNIST": read_idx},
            {"test": 10_000, "train": 60_000},
        ),
    )
}
"""What the paper mixes in, as published with ODIN, and what is easy to come by."""

DEBIAN = Path("/usr/share/datasets")
"""Where Debian's packages put data sets."""


def find_dataset(name: str) -> Dataset:
    """Return a data set by its name; an unknown name is refused with the known ones."""
    datasets = DATASETS | OUT_SETS
    if name not in datasets:
        message = f"expected a data set out of {', '.join(datasets)}, got {name!r}."
        raise InputError(message)
    return datasets[name]
