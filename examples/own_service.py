"""For someone with a web service: the gate in ten lines of FastAPI.

`app` is the service; ``uvicorn own_service:app`` serves it. `trustdoctor serve` is a
service that also keeps the rows, lets people review them, and watches the promise.

The rows are bundled: a DenseNet on the CIFAR-10 test set. This script asks the service
as others would, and prints::

    at most 5% of the correct predictions rejected, with confidence 0.9
    {'predicted': 'dog', 'accepted': True}
    {'predicted': 'dog', 'accepted': True}
    {'predicted': 'deer', 'accepted': False}
    2,000 rows at once: 1,816 accepted
    422: expected rows of 10 classes, as in the gate's calibration, got 2. Calibrate a gate on rows like these.
"""  # noqa: E501

from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

import trustdoctor as td
from trustdoctor.demo import CLASSES, bundled_file

ROWS = td.read(bundled_file())
GATE = td.calibrate(ROWS[:5000], score="alpha", frr=0.05)

app = FastAPI()


@app.post("/decide")
def decide(logits: list[list[float]]) -> list[dict[str, str | bool]]:
    """Say which class each row is, and whether to trust that."""
    try:
        screened = GATE.screen(logits, kind="logits")
    except td.errors.InputError as error:
        raise HTTPException(422, str(error)) from error
    rows = zip(screened.predicted, screened.accepted.tolist(), strict=True)
    return [{"predicted": CLASSES[k], "accepted": accepted} for k, accepted in rows]


def main() -> None:
    """Ask about new rows, and about rows that the gate does not know."""
    print(GATE.certificate.promise())
    client, new = TestClient(app), ROWS[5000:7000].logits.tolist()
    for answer in client.post("/decide", json=new[:3]).json():
        print(answer)
    decisions = client.post("/decide", json=new).json()
    accepted = sum(decision["accepted"] for decision in decisions)
    print(f"{len(new):,} rows at once: {accepted:,} accepted")
    refused = client.post("/decide", json=[[1.0, 0.0]])
    print(f"{refused.status_code}: {refused.json()['detail']}")


if __name__ == "__main__":
    main()
