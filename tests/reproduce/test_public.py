"""Public nets compared with the paper's: one in full, all of them in one table."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score, roc_curve

from trustdoctor.metrics import Estimate
from trustdoctor.reproduce import Options, reproduce
from trustdoctor.reproduce.sources import find_exhibits

ROWS = 400
BRIEF = "public nets, none of them the paper's, by accuracy"
ACCURACIES = {"vgg16_bn": 91, "resnet20": 77, "shufflenetv2_x0_5": 60}
"""The paper's accuracy on CIFAR-100 is 78."""


def write(path, accuracy, *, classes=100, seed=0, **arrays):
    """Write predictions of this accuracy, in percent, and return them."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(ROWS, classes)).astype(np.float32)
    labels = logits.argmax(1)
    wrong = np.argsort(logits.max(1))[: ROWS * (100 - accuracy) // 50]
    wrong = rng.permutation(wrong)[: ROWS * (100 - accuracy) // 100]
    labels[wrong] = (labels[wrong] + 1) % classes
    path.parent.mkdir(exist_ok=True)
    np.savez(path, logits=logits, labels=labels, **arrays)
    return logits, labels


@pytest.fixture
def folder(tmp_path):
    """One private net, and three public ones."""
    write(tmp_path / "ours-cifar100-test.npz", 70)
    for seed, (net, accuracy) in enumerate(ACCURACIES.items()):
        path = tmp_path / "public" / f"{net}-cifar100-test.npz"
        write(path, accuracy, seed=seed)
    return tmp_path


def titles(report):
    aside = ("data not", "The grid numbers")
    return [t.title for t in report.tables if not t.title.startswith(aside)]


def brief(report, data="CIFAR-100"):
    (table,) = (t for t in report.tables if t.title.startswith(f"{data}: "))
    assert BRIEF in table.title
    return table


def test_the_nearest_net_is_shown_in_full_and_named_as_another(folder):
    report = reproduce("table1", Options(data=folder))
    assert titles(report) == [
        "CIFAR-100, ours: 400 rows, accuracy 70.00 (the paper's DenseNet: 78), in %",
        "CIFAR-100, ResNet-20 (public), not the paper's net: 400 rows, accuracy 77.00 "
        "(the paper's DenseNet: 78), in %",
        f"CIFAR-100: 3 {BRIEF}, in %",
    ]
    assert (
        "On CIFAR-100, ResNet-20 (public), not the paper's net, has accuracy 77.00, "
        "the paper's 78; of 3 public nets it is the nearest" in report.words
    )
    assert len(report.pictures[0].panels) == 2  # of the full tables


def test_all_public_nets_are_listed_below_the_paper_by_accuracy(folder):
    rows = brief(reproduce("table1", Options(data=folder))).rows
    assert rows[:3] == (
        ("the paper's", 78, "alpha", 87.0, 40.6),
        ("the paper's", 78, "beta", 84.2, 40.6),
        ("the paper's", 78, "sr", 86.9, 40.5),
    )
    assert [row[:3] for row in rows[3:]] == [
        (net, pytest.approx(accuracy), method)
        for net, accuracy in (
            ("VGG-16-BN", 91),
            ("ResNet-20", 77),
            ("ShuffleNetV2 x0.5", 60),
        )
        for method in ("alpha", "beta", "sr")
    ]


def reference(logits, labels, method):
    """Return AUROC and FRR at 95% TRR in percent, by scipy and scikit-learn."""
    probs = softmax(logits.astype(np.float64), axis=1)
    doubts = 1 - (probs**2).sum(1) if method == "alpha" else 1 - probs.max(1)
    errors = logits.argmax(1) != labels
    frr, trr, _ = roc_curve(errors, doubts, drop_intermediate=False)
    return 100 * roc_auc_score(errors, doubts), 100 * frr[trr >= 0.95].min()


def check_numbers(table, net, logits, labels):
    for row in (row for row in table.rows if row[0] == net):
        expected = reference(logits, labels, row[2])
        values = [cell.value for cell in row[3:]]
        assert values == pytest.approx(expected, abs=0.01), row[2]
        assert all(cell.low <= cell.value <= cell.high for cell in row[3:])


def test_the_numbers_are_those_of_scikit_learn(tmp_path):
    nets = {
        "A": write(tmp_path / "public" / "A-cifar100-test.npz", 80, seed=3),
        "B": write(tmp_path / "public" / "B-cifar100-test.npz", 70, seed=4),
    }
    report = reproduce("table1", Options(data=tmp_path))
    differences = []
    for net, pair in nets.items():
        check_numbers(brief(report), net, *pair)
        alpha, sr = (reference(*pair, method)[0] for method in ("alpha", "sr"))
        differences.append(alpha - sr)
    ends = f"from {min(differences):+.2f} to {max(differences):+.2f}"
    assert f"alpha minus that of SR goes {ends} (the paper's: +0.10)." in report.words


def test_what_public_nets_lack_is_reported_once(folder):
    notes = reproduce("table1", Options(data=folder)).notes
    about = [note for note in notes if "public" in note]
    assert about[0] == (
        "CIFAR-100, ResNet-20 (public): read from resnet20-cifar100-test.npz."
    )
    assert "alpha PBB needs predictions at perturbed inputs, or --model" in about[1]
    assert about[2:] == [
        "CIFAR-100, other public nets: read from "
        "shufflenetv2_x0_5-cifar100-test.npz, vgg16_bn-cifar100-test.npz.",
        "CIFAR-100, other public nets: mhlnb TBB, alpha PBB, beta PBB, mhlnb PBB are "
        "missing, since there is nothing but clean predictions of the test rows.",
    ]


def test_a_public_net_that_brings_more_is_shown_in_full(folder):
    path = folder / "public" / "vgg16_bn-cifar100-test.npz"
    logits, _ = write(path, 91)
    write(path, 91, **{"pbb_alpha_T1_eps0.00035": logits})
    report = reproduce("table1", Options(data=folder))
    (full,) = (t for t in report.tables if "VGG-16-BN (public), not" in t.title)
    cells = {row[:2]: row[3] for row in full.rows}
    assert cells["alpha", "PBB paper"].value == cells["alpha", "TBB"].value
    assert len(brief(report).rows) == 12


def test_one_public_file_needs_no_second_table(folder):
    path = folder / "public" / "vgg16_bn-cifar100-test.npz"
    report = reproduce("table1", Options(predictions=path))
    (title,) = titles(report)
    assert title.startswith("CIFAR-100, VGG-16-BN (public), not the paper's net: ")
    assert report.words.endswith(
        "On CIFAR-100, VGG-16-BN (public), not the paper's net, has accuracy 91.00, "
        "the paper's 78."
    )


def test_private_nets_are_not_called_public(folder):
    write(folder / "resnet20-cifar100-test.npz", 78)
    (folder / "public").rename(folder / "nets")
    report = reproduce("table1", Options(data=folder))
    assert len(titles(report)) == 4
    assert "public" not in f"{titles(report)} {report.words} {report.notes}"


def test_a_public_and_a_private_net_of_the_same_name_stay_apart(folder):
    write(folder / "resnet20-cifar100-test.npz", 50)
    write(folder / "resnet20-cifar100-train.npz", 90)
    by_name = {exhibit.name: exhibit for exhibit in find_exhibits(Options(data=folder))}
    ours, theirs = (
        by_name["CIFAR-100, resnet20"],
        by_name["CIFAR-100, ResNet-20 (public)"],
    )
    assert (ours.accuracy, theirs.accuracy) == (pytest.approx(50), pytest.approx(77))
    assert ours.train is not None
    assert theirs.train is None
    assert ours.slug != theirs.slug


def test_public_nets_are_found_in_a_folder_of_predictions(folder):
    inner = folder / "predictions"
    inner.mkdir()
    (folder / "public").rename(inner / "public")
    exhibits = find_exhibits(Options(data=folder))
    assert sum(exhibit.public for exhibit in exhibits) == 3


@pytest.mark.parametrize(
    ("model", "net"),
    [
        ("resnet56", "ResNet-56"),
        ("repvgg_a1", "RepVGG-A1"),
        ("mobilenetv2_x0_75", "MobileNetV2 x0.75"),
        ("shufflenetv2_x1_0", "ShuffleNetV2 x1.0"),
        ("vgg19_bn", "VGG-19-BN"),
        ("resnet-20", "resnet-20"),
        ("my_vgg16_bn", "my_vgg16_bn"),
    ],
)
def test_public_nets_have_their_printed_names(model, net, tmp_path):
    write(tmp_path / "public" / f"{model}-svhn-test.npz", 90, classes=10)
    (exhibit,) = find_exhibits(Options(data=tmp_path))
    assert exhibit.name == f"SVHN, {net} (public)"


def test_a_net_without_errors_does_not_stop_the_rest(folder):
    write(folder / "public" / "resnet56-cifar100-test.npz", 100)
    report = reproduce("table1", Options(data=folder))
    best = brief(report).rows[3:6]
    assert [row[0] for row in best] == ["ResNet-56"] * 3
    assert [cell.value for row in best for cell in row[3:]] == [None] * 6
    assert "goes from" in report.words


def test_two_classes_leave_no_difference_between_methods(tmp_path):
    for seed, net in enumerate(("a", "b")):
        path = tmp_path / "public" / f"{net}-imdb-test.npz"
        write(path, 85 + seed, classes=2, seed=seed)
    report = reproduce("table1", Options(data=tmp_path))
    assert "goes from +0.00 to +0.00 (the paper's: +0.70)" in report.words
    assert "With the two classes of IMDb, alpha" in report.words  # named once
    assert not any("missing" in note for note in report.notes)


def test_the_command_prints_narrow_tables_from_inside_the_folder(folder, run):
    completed = run(
        "reproduce", "table1", "--data", ".", cwd=folder / "public", columns=140
    )
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = (x.split() for x in lines if x.startswith("ShuffleNetV2 x0.5 60.00    sr"))
    assert len(row) == 10  # two intervals, on one line


def test_a_model_finds_its_public_predictions(world, tmp_path):
    (tmp_path / "public").mkdir()
    for place, name in (
        ("", "cifar-10-batches-bin"),
        ("public", "tiny-cifar10-test.npz"),
    ):
        (tmp_path / place / name).symlink_to(world.data / name)
    (exhibit,) = find_exhibits(replace(world, data=tmp_path))
    assert exhibit.public
    assert exhibit.model_run is not None
    assert exhibit.files == ["tiny-cifar10-test.npz"]


@pytest.fixture(scope="module")
def public(shared):
    folder = shared / "predictions" / "public"
    if not folder.is_dir():
        pytest.skip(f"the predictions of public nets are absent: {folder}")
    return folder


@pytest.fixture(scope="module")
def real(public):
    return reproduce("table1", Options(data=public))


@pytest.mark.parametrize(
    ("data", "accuracy", "theirs"), [("CIFAR-10", 94.93, 95), ("CIFAR-100", 76.44, 78)]
)
def test_the_real_public_nets_are_compared_with_the_paper(
    real, public, data, accuracy, theirs
):
    named = f"{data}, RepVGG-A1 (public), not the paper's net"
    (full,) = (t for t in real.tables if t.title.startswith(f"{data}, RepVGG"))
    assert full.title == (
        f"{named}: 10,000 rows, accuracy {accuracy} "
        f"(the paper's DenseNet: {theirs}), in %"
    )
    assert f"{named}, has accuracy {accuracy}, the paper's {theirs}" in real.words
    filled = {row[:2] for row in full.rows if isinstance(row[3], Estimate)}
    assert filled == {
        *((method, "TBB") for method in ("alpha", "beta", "odin", "sr")),
        *((method, "PBB deployed") for method in ("odin", "energy")),
    }
    nets = list(public.glob(f"*-{data.replace('-', '').lower()}-test.npz"))
    assert len({row[0] for row in brief(real, data).rows}) == 1 + len(nets)


def test_real_numbers_on_cifar100_are_those_of_scikit_learn(real, public):
    for name, net in (("repvgg_a1", "RepVGG-A1"), ("resnet20", "ResNet-20")):
        with np.load(public / f"{name}-cifar100-test.npz") as file:
            check_numbers(brief(real), net, file["logits"], file["labels"])


def test_a_model_that_is_stored_twice_is_counted_once(folder):
    """As a private net and a public one with the same weights."""
    logits = write(folder / "public" / "resnet56-cifar100-test.npz", 74, seed=9)[0]
    arrays = {"logits": logits + 1e-5}
    with np.load(folder / "public" / "resnet56-cifar100-test.npz") as file:
        np.savez(folder / "copy-cifar100-test.npz", labels=file["labels"], **arrays)
    report = reproduce("models", Options(data=folder))
    (mean,) = (row for row in report.tables[0].rows if "all models" in str(row[0]))
    assert mean[0] == "all models (5)"
    (note,) = (note for note in report.notes if "has the logits of" in note)
    assert note.startswith("CIFAR-100, ResNet-56 (public): left out")
