"""Alarms, posted to the URL that the service was started with."""

import hmac
import json
import time
from typing import Any

from trustdoctor.errors import InputError
from trustdoctor.http_client import HttpClient

TIMEOUT = 10.0
"""Seconds for a whole call. Alarms go one by one: a slow receiver delays the next."""


def send_alarm(url: str, alarm: dict[str, Any], secret: str | None) -> bool:
    """Post an alarm; return whether the receiver took it.

    `Trustdoctor-Signature` is ``t=SECONDS,v1=HEX``, the HMAC-SHA256 of
    ``SECONDS.BODY`` by the secret.
    """
    body = json.dumps({"type": "trustdoctor.alarm", "alarm": alarm}).encode()
    headers = {}
    if secret:
        # The time is signed, too: who recorded an alarm cannot send it again later.
        seconds = str(int(time.time()))
        signature = hmac.new(secret.encode(), f"{seconds}.".encode() + body, "sha256")
        headers["Trustdoctor-Signature"] = f"t={seconds},v1={signature.hexdigest()}"
    try:
        http = HttpClient(url, timeout=TIMEOUT, proxies=True)
        response = http.call("POST", body=body, headers=headers)
    except (InputError, ValueError):  # an untrusted certificate, or no URL at all
        return False
    return 200 <= response.status < 300
