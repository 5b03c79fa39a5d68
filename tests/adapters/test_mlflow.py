"""A model and its gate in MLflow: logged, loaded and asked."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError

mlflow = pytest.importorskip("mlflow")
onnx = pytest.importorskip("onnx")
pd = pytest.importorskip("pandas")
skl2onnx = pytest.importorskip("skl2onnx")
sklearn = pytest.importorskip("sklearn")

from sklearn.datasets import load_digits, load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from trustdoctor.adapters.mlflow import log_model  # noqa: E402
from trustdoctor.adapters.onnx import predict  # noqa: E402
from trustdoctor.adapters.sklearn import TrustedClassifier  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:::mlflow")  # warns of itself

ASK = """
import sys
import mlflow
import pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
rows = pd.read_parquet("rows.parquet")
for number, uri in enumerate(sys.argv[2:]):
    mlflow.pyfunc.load_model(uri).predict(rows).to_parquet(f"{number}.parquet")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A tracking store in a folder; other processes find it by its URI."""
    folder = tmp_path_factory.mktemp("store")
    before = mlflow.get_tracking_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow.set_tracking_uri((folder / "runs").as_uri())
        yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def digits(store):
    """A fitted classifier, rows for a gate with their labels, and new rows."""
    x, y = load_digits(return_X_y=True, as_frame=True)
    x[400:].to_parquet(store / "all.parquet")
    x[1200:].to_parquet(store / "rows.parquet")  # as another process will have them
    later_rows, new_rows = (
        pd.read_parquet(store / "all.parquet"),
        store / "rows.parquet",
    )
    fitted = LogisticRegression(max_iter=5000).fit(x[:400], y[:400])
    return fitted, later_rows[:800], y[400:1200], pd.read_parquet(new_rows)


@pytest.fixture(scope="module")
def graph(store, digits):
    """The same classifier as an ONNX file."""
    fitted, gate_rows, *_ = digits
    onnx_model = skl2onnx.to_onnx(
        fitted, gate_rows.to_numpy(np.float32)[:1], options={"zipmap": False}
    )
    (store / "model.onnx").write_bytes(onnx_model.SerializeToString())
    return store / "model.onnx"


def calibrated(probs, labels, **options):
    p = td.Predictions.from_probs(probs, labels, **options)
    return td.calibrate(p, score="alpha", frr=0.05, shortlist=0.9)


NAMES = np.array([f"digit {k}" for k in range(10)])


@pytest.fixture(scope="module")
def gates(digits, graph):
    """A gate for each of the models below."""
    fitted, gate_rows, labels, _ = digits
    p = td.Predictions.from_probs(fitted.predict_proba(gate_rows), labels)
    probs = np.exp(predict(graph, gate_rows.to_numpy()).logits)
    return {
        "estimator": calibrated(fitted.predict_proba(gate_rows), labels),
        "graph": calibrated(probs, NAMES[labels], class_names=NAMES),
        "by class": td.calibrate(p, score="beta", frr=0.2, groups="predicted"),
        "with a step": td.Gate.from_gamma(0.3),
    }


@pytest.fixture(scope="module")
def stepped(digits):
    """A pipeline with a function from outside scikit-learn."""
    _, gate_rows, labels, _ = digits
    steps = FunctionTransformer(np.nan_to_num), StandardScaler(), LogisticRegression()
    return make_pipeline(*steps).fit(gate_rows, labels)


@pytest.fixture(scope="module")
def logged(digits, graph, gates, stepped):
    """What MLflow says of the models that were logged."""
    fitted, *_, new = digits
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="mlflow")
        infos = [
            log_model(fitted, gates["estimator"], name="d", input_example=new[:3]),
            log_model(graph, gates["graph"], probs="probabilities"),
            log_model(fitted, gates["by class"]),
            log_model(stepped, gates["with a step"], trusted=["numpy.nan_to_num"]),
        ]
    return dict(zip(gates, infos, strict=True))


@pytest.fixture(scope="module")
def answers(logged, digits):
    """What the logged models answer here, and what MLflow says of them."""
    answers = {}
    for name, info in logged.items():
        table = mlflow.pyfunc.load_model(info.model_uri).predict(digits[3])
        answers[name] = table, info
    return answers


@pytest.mark.soak
def test_another_process_gets_the_same_answers(store, logged, answers):
    uris = [info.model_uri for info in logged.values()]
    command = [sys.executable, "-c", ASK, mlflow.get_tracking_uri(), *uris]
    subprocess.run(command, check=True, capture_output=True, cwd=store)
    for number, (table, _) in enumerate(answers.values()):
        there = pd.read_parquet(store / f"{number}.parquet")
        pd.testing.assert_frame_equal(there, table, check_exact=True)


def test_an_estimator_and_its_gate_decide_as_the_gate_does(answers, digits, gates):
    fitted, *_, new = digits
    table, info = answers["estimator"]
    screened = gates["estimator"].screen(fitted.predict_proba(new), kind="probs")
    assert table["predicted"].tolist() == fitted.predict(new).tolist()
    assert table["doubt"].tolist() == screened.doubts.tolist()
    assert table["accepted"].tolist() == screened.accepted.tolist()
    assert table.index.tolist() == new.index.tolist()
    assert 0 < screened.accepted.sum() < len(new)
    listed = [set(text.split(" | ")) - {""} for text in table["shortlist"]]
    expected_lists = [set(map(str, np.flatnonzero(row))) for row in screened.shortlist]
    assert listed == [
        {"full review"} if len(row) == 10 else row for row in expected_lists
    ]
    names = ["predicted", "doubt", "accepted", "shortlist"]
    assert info.signature.outputs.input_names() == names


def test_an_onnx_file_and_its_gate_decide_as_the_gate_does(
    answers, digits, gates, graph
):
    table, _ = answers["graph"]
    p = predict(graph, digits[3].to_numpy())
    screened = gates["graph"].screen(p)
    assert table["predicted"].tolist() == NAMES[p.predicted].tolist()
    assert table["doubt"].tolist() == screened.doubts.tolist()
    assert table["accepted"].tolist() == screened.accepted.tolist()
    first = table["shortlist"][~screened.accepted].iloc[0]
    assert first.split(" | ")[0] == NAMES[p.predicted[~screened.accepted][0]]


def test_gates_by_predicted_class_travel_too(answers, digits, gates):
    fitted, *_, new = digits
    screened = gates["by class"].screen(fitted.predict_proba(new), kind="probs")
    table, _ = answers["by class"]
    assert table["accepted"].tolist() == screened.accepted.tolist()
    assert "shortlist" not in table


def test_types_of_others_must_be_trusted(answers, digits, gates, stepped):
    fitted, gate = stepped, gates["with a step"]
    named = "not scikit-learn's own: numpy.nan_to_num. If you trust them, pass"
    assert named in refused(fitted, gate)
    screened = gate.screen(fitted.predict_proba(digits[3]), kind="probs")
    assert answers["with a step"][0]["doubt"].tolist() == screened.doubts.tolist()


def test_nothing_is_pickled(answers, tmp_path):
    for name, model in (("estimator", "model.skops"), ("graph", "model.onnx")):
        info, folder = answers[name][1], tmp_path / name
        mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(folder))
        files = {file.name for file in (folder / "data" / "guarded").iterdir()}
        assert files == {"gate.json", "options.json", model}
        assert not [*folder.rglob("*.pkl")]
    needed = (tmp_path / "estimator" / "requirements.txt").read_text().split()
    requirement = f"trustdoctor[mlflow,sklearn]=={td.__version__}"
    assert {requirement, f"scikit-learn=={sklearn.__version__}"} <= set(needed)


def test_external_weights_of_an_onnx_file_come_along(store, tmp_path):
    weights = np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32)
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 600), ("logits", 5))
    ]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["logits"])
    tensors = [onnx.numpy_helper.from_array(weights, "w")]
    graph_proto = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], tensors)
    model = onnx.helper.make_model(
        graph_proto, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="beside")
    rows, gate = np.ones((2, 600), np.float32) / 100, td.Gate.from_gamma(0.5)
    info = log_model(path, gate)
    (tmp_path / "beside").unlink()
    table = mlflow.pyfunc.load_model(info.model_uri).predict(rows)
    expected = gate.screen(rows.astype(float) @ weights, kind="logits")
    np.testing.assert_allclose(table["doubt"], expected.doubts, rtol=1e-4)
    assert store.exists()


def test_classes_in_another_order_are_refused_with_the_example():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    fitted = LogisticRegression(max_iter=500).fit(x, names[y])
    p = td.Predictions.from_probs(
        fitted.predict_proba(x)[:, ::-1], names[y], class_names=names[::-1]
    )
    gate = td.calibrate(p, score=td.RelU.fit(p), frr=0.1)
    with pytest.raises(InputError, match="order"):
        log_model(fitted, gate, input_example=x[:2])


def refused(model, gate, **options):
    with pytest.raises(InputError) as refusal:
        log_model(model, gate, **options)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_unsupported_models_are_not_logged(digits, tmp_path):
    fitted, gate_rows, labels, _ = digits
    plain = td.Gate.from_gamma(0.5)
    assert "it names no score" in refused(fitted, td.Gate(0.0))
    refusal = refused(fitted, td.Gate(0.0, score="energy"))
    assert "its score energy needs logits, which the model lacks" in refusal
    rows = td.Predictions.from_probs(
        fitted.predict_proba(gate_rows), labels, groups=np.arange(800) % 2
    )
    grouped = td.calibrate(rows, score="alpha", frr=0.2, groups="given")
    assert "thresholds for groups (given)" in refused(fitted, grouped)
    trusted = TrustedClassifier(fitted, cv="prefit").fit(gate_rows, labels)
    assert "log_model(model.estimator_, model.gate_)" in refused(trusted, plain)
    assert "got SVC. Fit it" in refused(SVC(), plain)
    assert "got LogisticRegression. Fit it" in refused(LogisticRegression(), plain)
    (tmp_path / "other.onnx").write_text("no model")
    with pytest.raises(FileError, match="as an ONNX model"):
        log_model(tmp_path / "other.onnx", plain)
    with pytest.raises(FileError, match="as an ONNX model"):
        log_model(tmp_path / "missing.onnx", plain)


def test_an_onnx_file_of_unclear_outputs_is_refused(digits, tmp_path):
    fitted, gate_rows, _, _ = digits
    path = tmp_path / "model.onnx"
    onnx_model = skl2onnx.to_onnx(fitted, gate_rows.to_numpy(np.float32)[:1])
    onnx_model.graph.output[1].name = "x"
    onnx_model.graph.node[-1].output[0] = "x"
    path.write_bytes(onnx_model.SerializeToString())
    gate = td.Gate.from_gamma(0.5)
    assert "has no tensor 'y'" in refused(path, gate, logits="y")
    assert "got both" in refused(path, gate, logits="x", probs="x")


@pytest.mark.parametrize(
    ("package", "line"),
    [("mlflow", "logging a model needs mlflow"), ("skops", "needs skops")],
)
def test_without_its_packages_the_pip_line_is_named(package, line):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import trustdoctor as td\n"
        "from trustdoctor.adapters.mlflow import _skops, log_model\n"
        "try:\n"
        f"    {'_skops()' if package == 'skops' else 'log_model(0, 0)'}\n"
        "except td.errors.MissingPackageError as error:\n"
        "    print(error)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert line in process.stdout
    assert 'pip install "trustdoctor[mlflow]"' in process.stdout


def test_importing_the_adapter_imports_no_framework():
    code = "import sys, trustdoctor.adapters.mlflow; print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"mlflow", "pandas", "sklearn", "onnx", "skops"}
    assert heavy.isdisjoint(process.stdout.split())
