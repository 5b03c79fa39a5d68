"""Models whose rows may have several labels at once: refused, not gated."""

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import TensorProto, helper
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import trustdoctor as td
from trustdoctor.adapters import onnx as onnx_adapter
from trustdoctor.adapters import sklearn as sklearn_adapter
from trustdoctor.adapters.sklearn import TrustedClassifier
from trustdoctor.adapters.transformers import (
    TrustedPipeline,
    load_folder,
    predict,
    predictor,
)
from trustdoctor.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
SEVERAL = "expected a model that gives each row one class"
GATE = td.Gate(0.0, score="alpha")


def make_folder(path, **fields):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    vocabulary = {word: i for i, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        **{"num_labels": 3, **fields},
    )
    transformers.BertForSequenceClassification(config).save_pretrained(path)
    return path


FIELDS = [
    ({"problem_type": "multi_label_classification"}, SEVERAL),
    ({"function_to_apply": "sigmoid"}, SEVERAL),
    ({"problem_type": "regression"}, "got a model that answers with a regression"),
    ({"num_labels": 1}, "got a model that answers with one number"),
]


@pytest.mark.parametrize(("fields", "why"), FIELDS, ids=str)
def test_folders_of_such_models_are_refused(fields, why, tmp_path, run):
    folder = make_folder(tmp_path / "model", **fields)
    with pytest.raises(InputError, match=why):
        load_folder(folder)
    (tmp_path / "rows.csv").write_text("text\ngood\n")
    options = ("--data", tmp_path / "rows.csv", "-o", tmp_path / "out.csv")
    process = run("predict", "--model", folder, *options)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert why in process.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(("fields", "why"), FIELDS, ids=str)
def test_such_models_and_pipelines_are_refused(fields, why, tmp_path):
    folder = make_folder(tmp_path / "model", **fields)
    pipe = transformers.pipeline("text-classification", model=str(folder))
    for ask in (
        lambda: predict(pipe.model, ["good"], processor=pipe.tokenizer, quiet=True),
        lambda: predictor((pipe.model, pipe.tokenizer))(["good"]),
        lambda: TrustedPipeline(pipe, GATE),
    ):
        with pytest.raises(InputError, match=why):
            ask()


def test_pipelines_that_apply_a_sigmoid_are_refused(tmp_path):
    folder = str(make_folder(tmp_path / "model"))
    options = {"model": folder, "function_to_apply": "sigmoid"}
    pipe = transformers.pipeline("text-classification", **options)
    with pytest.raises(InputError, match=SEVERAL):
        TrustedPipeline(pipe, GATE)
    TrustedPipeline(transformers.pipeline("text-classification", model=folder), GATE)


X, Y = make_multilabel_classification(80, 5, n_classes=3, random_state=0)
CLASSIFIERS = [
    RandomForestClassifier(3, random_state=0),
    MLPClassifier(max_iter=3, random_state=0),
    OneVsRestClassifier(LogisticRegression()),
    MultiOutputClassifier(LogisticRegression()),
    make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)),
]


def named(model):
    return type(model).__name__


@pytest.mark.parametrize("model", CLASSIFIERS, ids=named)
def test_classifiers_of_several_labels_are_refused(model):
    with pytest.raises(InputError, match=SEVERAL):
        TrustedClassifier(model).fit(X, Y)
    fitted = model.fit(X, Y)
    with pytest.raises(InputError, match=SEVERAL):
        TrustedClassifier(fitted, cv="prefit").fit(X, Y[:, 0])
    with pytest.raises(InputError, match=SEVERAL):
        sklearn_adapter.predictor(fitted)(X)


def test_a_classifier_that_answers_with_a_column_has_one_label():
    class Column(LogisticRegression):
        def predict(self, x):
            return super().predict(x)[:, None]

    plain = TrustedClassifier(LogisticRegression(), frr=0.2).fit(X, Y[:, 0])
    model = TrustedClassifier(Column(), frr=0.2).fit(X, Y[:, 0])
    assert model.gate_.threshold == plain.gate_.threshold
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def graph_of(path, *nodes, outputs=("y",), kinds=None):
    """A model of rows (n, 4) whose first node is the product z (n, 3)."""
    weights = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    onnx_nodes = [helper.make_node("MatMul", ["x", "w"], ["z"])]
    onnx_nodes += [helper.make_node(op, [a], [b], **more) for op, a, b, more in nodes]
    types = {name: (TensorProto.FLOAT, ["n", 3]) for name in outputs} | (kinds or {})
    graph = helper.make_graph(
        onnx_nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(name, *types[name]) for name in outputs],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)
    return path


SIGMOIDS = {
    "output": ([("Sigmoid", "z", "y", {})], ("y",), {"probs": "y"}),
    "named logits": ([("Sigmoid", "z", "logits", {})], ("logits",), {}),
    "behind an Identity": (
        [("Sigmoid", "z", "s", {}), ("Identity", "s", "y", {})],
        ("y",),
        {"logits": "y"},
    ),
    "beside the logits": ([("Sigmoid", "z", "y", {})], ("z", "y"), {"logits": "z"}),
    "of the logits named": ([("Sigmoid", "z", "y", {})], ("y",), {"logits": "z"}),
}


@pytest.mark.parametrize("case", SIGMOIDS)
def test_graphs_that_end_in_sigmoids_are_refused(case, tmp_path):
    nodes, outputs, named = SIGMOIDS[case]
    path = graph_of(tmp_path / "m.onnx", *nodes, outputs=outputs)
    with pytest.raises(InputError, match=SEVERAL):
        onnx_adapter.export(path, GATE, tmp_path / "g.onnx", **named)
    assert not (tmp_path / "g.onnx").exists()
    with pytest.raises(InputError, match=SEVERAL):
        onnx_adapter.predict(path, np.ones((2, 4)), **named)


def test_sigmoids_within_a_model_are_none_of_ours(tmp_path):
    nodes = [("Sigmoid", "z", "s", {}), ("Softmax", "s", "y", {"axis": -1})]
    path = graph_of(tmp_path / "m.onnx", *nodes)
    source = onnx_adapter.export(path, GATE, tmp_path / "g.onnx")
    assert source.tensor == "s"


@pytest.mark.parametrize("model", CLASSIFIERS[:3], ids=named)
def test_exports_of_such_classifiers_are_refused(model, tmp_path):
    from skl2onnx import to_onnx

    rows = X.astype(np.float32)
    options = {"zipmap": False}
    onnx_model = to_onnx(model.fit(rows, Y), rows[:1], options=options)
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_model.SerializeToString())
    named = {"probs": "probabilities"}
    with pytest.raises(InputError, match=SEVERAL):
        onnx_adapter.export(path, GATE, tmp_path / "g.onnx", **named)
