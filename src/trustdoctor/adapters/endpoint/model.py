"""What is asked of an endpoint, and what its answers say of the choices."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from trustdoctor.adapters.endpoint import fields
from trustdoctor.adapters.endpoint.answers import AnswerFile, choice_shares
from trustdoctor.errors import InputError
from trustdoctor.predictions import Predictions
from trustdoctor.progress import Tell

FIRST = 20
"""Answers after which one must have spoken for a choice."""

_PLACES = re.compile(r"\{(text|choices)\}")


@dataclass(frozen=True)
class Endpoint:
    """A language model that a server offers, asked which of some choices a text is.

    Every text is one request to ``{url}/chat/completions`` for the log-probabilities of
    the first token. Tokens that begin a choice speak for it. Their probabilities are
    divided by their sum; where no choice is spoken for, all are equally probable, the
    largest doubt. No promise rests on that division: what it does to the doubt is
    calibrated with everything else.

    Equal questions are asked once. Answers are kept in a file under a digest of the
    URL, the choices and the request. A run that was stopped goes on where it was, and
    a question that changed is asked anew. `td.read(file, choices=...)` reads the file.

    Parameters
    ----------
    url : str
        The base of the server's addresses, as "http://127.0.0.1:8000/v1".
    model : str
        Its name, as the server has it.
    choices : sequence of str
        Two or more, told apart by their first token. Single letters are safest.
    prompt, system : str
        What the user and the system say. A row's text stands for {text}, the choices,
        with commas, for {choices}. An empty system message is not sent.
    key_env : str
        The name of the environment variable that holds the key. The key itself is never
        kept. Where the variable is not set, or the name is empty, no key is sent.
    timeout : float
        Seconds for one request, from its beginning to the end of the answer.
    retries : int
        How often a request is repeated that timed out, was not answered, or met 408,
        409, 429 or 5xx. The pauses grow, and are as long as the server asks for, up to
        a minute.
    workers : int
        Requests at the same time.
    max_calls : int, optional
        How many requests may be sent over the life of the file of answers, repeated
        ones included.
    answers : path, optional
        Where answers are kept, one per line. Without it they are forgotten. Several
        processes may use one file: a hidden lock file lets one write at a time.
        The file `ANSWERS.calls` beside it has one byte for each request.
    extra : mapping, optional
        More fields of the request, or others than temperature 0, max_tokens 1 and
        top_logprobs 20. None leaves a field out.

    Examples
    --------
    >>> model = Endpoint(
    ...     "http://127.0.0.1:8000/v1",
    ...     "qwen",
    ...     choices=("yes", "no"),
    ...     prompt="Is this spam? Answer {choices}. {text}",
    ... )
    >>> model.question("You won!")["messages"]
    [{'role': 'user', 'content': 'Is this spam? Answer yes, no. You won!'}]
    """

    url: str
    model: str
    choices: tuple[str, ...]
    prompt: str = "{text}"
    system: str = ""
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    retries: int = 5
    workers: int = 4
    max_calls: int | None = None
    answers: Path | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    _kept: AnswerFile | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Check the fields; a path may come as text, choices as any sequence."""
        for name, value in fields.checked(self).items():
            object.__setattr__(self, name, value)
        if self.answers is not None:
            object.__setattr__(self, "_kept", AnswerFile(self.answers))

    def question(self, text: str) -> dict[str, Any]:
        """Return the request about one text, as the server gets it.

        Examples
        --------
        >>> model = Endpoint("http://127.0.0.1:8000/v1", "qwen", ("yes", "no"))
        >>> question = model.question("Is it raining?")
        >>> question["max_tokens"], question["top_logprobs"]
        (1, 20)
        """
        said = [("system", self.system)] if self.system else []
        said.append(("user", self.prompt))
        values = {"text": str(text), "choices": ", ".join(self.choices)}
        whole: dict[str, Any] = {
            "model": self.model,
            "messages": [
                {"role": role, "content": _PLACES.sub(lambda at: values[at[1]], words)}
                for role, words in said
            ],
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": True,
            "top_logprobs": 20,
            **self.extra,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def __call__(self, rows: Any, *, progress: Tell | None = None) -> Predictions:
        """Ask about texts, and return what is said of the choices, row by row.

        Parameters
        ----------
        rows : sequence of str
            Texts.
        progress : callable, optional
            Takes the share of the rows that is answered, and what is done.
        """
        texts = fields.as_texts(rows)
        digests = [self.digest(text) for text in texts]
        rows_of = {digest: row for row, digest in enumerate(digests)}
        found = self._recall(rows_of)
        missing = {one: row for one, row in rows_of.items() if one not in found}
        first = dict(list(missing.items())[:FIRST])
        for some in (first, {k: v for k, v in missing.items() if k not in first}):
            if some:
                found |= self._ask(texts, some, progress)
                self._require_choices(found)
        self._require_all(found, digests)
        probs = [found[digest] for digest in digests]
        return Predictions.from_probs(probs, class_names=self.choices)

    def digest(self, text: str) -> str:
        """Return what names the answer to a text in the file, as its custom_id.

        Examples
        --------
        >>> model = Endpoint("http://127.0.0.1:8000/v1", "qwen", ("yes", "no"))
        >>> model.digest("Is it raining?")
        'be6060f797044c1044384a73c11d339a'
        """
        whole = [self.url, list(self.choices), self.question(text)]
        content = json.dumps(whole, sort_keys=True).encode()
        return blake2b(content, digest_size=16).hexdigest()

    def _recall(self, rows_of: Mapping[str, int]) -> dict[str, list[float]]:
        """Return what kept answers say of the choices."""
        if self._kept is None:
            return {}
        kept = self._kept.find(rows_of)
        return {one: choice_shares(self, body, rows_of[one]) for one, body in kept}

    def _ask(
        self, texts: list[str], missing: dict[str, int], progress: Tell | None
    ) -> dict[str, list[float]]:
        """Ask what is not known yet, as far as the budget goes."""
        from trustdoctor.adapters.endpoint.workers import WorkerPool

        key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        fields.check_key(self, key)
        return WorkerPool(self, key, self._kept, texts, missing).run(progress)

    def _require_choices(self, found: Mapping[str, list[float]]) -> None:
        """Refuse a model that speaks for no choice, before more is spent on it."""
        if len(found) < FIRST or any(len(set(row)) > 1 for row in found.values()):
            return
        message = (
            f"none of {len(found)} answers of {self.model} begins with one of the "
            f"choices {', '.join(self.choices)}. Say in the prompt that it must answer "
            "with one of them alone, or name the choices as it writes them."
        )
        raise InputError(message)

    def _require_all(self, found: Mapping[str, Any], digests: list[str]) -> None:
        """Say where the budget ended."""
        left = sum(digest not in found for digest in digests)
        if left:
            message = (
                f"max_calls={self.max_calls} is spent: {len(digests) - left} rows are "
                f"answered, {left} are left. The answers are kept in {self.answers}; "
                "raise max_calls, and run again."
            )
            raise InputError(message)

    def save(self, path: str | Path) -> None:
        """Write the endpoint as JSON, without its key, whole or not at all."""
        fields.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Endpoint":
        """Read an endpoint, refusing whatever is not understood.

        A path of answers that is relative is one beside the file.
        """
        return fields.load(cls, Path(path))
