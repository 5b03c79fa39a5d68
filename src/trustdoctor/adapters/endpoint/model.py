"""A language model behind an OpenAI-compatible server, as a model to ask."""

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

FIRST_ANSWERS = 20
"""The number of answers after which one must have spoken for a choice."""

_PLACEHOLDERS = re.compile(r"\{(text|choices)\}")


@dataclass(frozen=True)
class Endpoint:
    """A language model that a server offers, asked which of some choices a text is.

    Every text is one request to ``{url}/chat/completions`` for the log-probabilities of
    the first token. Tokens that begin a choice speak for it. Their probabilities are
    divided by their sum; if no token speaks for a choice, all are equally probable, the
    largest doubt. No promise rests on that division: its effect on the doubt is
    calibrated with everything else.

    Equal questions are asked once. Answers are saved in a file under a digest of the
    URL, the choices and the request. A run that was stopped continues, and a question
    that changed is asked anew. `td.read(file, choices=...)` reads the file.

    Parameters
    ----------
    url : str
        The base of the server's addresses, as "http://127.0.0.1:8000/v1".
    model : str
        The name of the model on the server.
    choices : sequence of str
        Two or more, told apart by their first token. Single letters are safest.
    prompt, system : str
        The messages of the user and of the system. {text} stands for a row's text,
        {choices} for the choices with commas. An empty system message is not sent.
    key_env : str
        The name of the environment variable that holds the key. The key itself is never
        saved. If the variable is not set, or the name is empty, no key is sent.
    timeout : float
        Seconds for one request, from its beginning to the end of the answer.
    retries : int
        How often a request is repeated that timed out, was not answered, or met 408,
        409, 429 or 5xx. The pauses grow, and are as long as the server asks for, up to
        a minute.
    workers : int
        The number of requests at the same time.
    max_calls : int, optional
        The number of requests that may be sent over the life of the file of answers,
        repeated ones included.
    answers : path, optional
        The file of answers, one per line. Without it they are forgotten. Several
        processes may use one file: a hidden lock file lets one write at a time.
        The file `ANSWERS.calls` beside it has one byte for each request.
    extra : mapping, optional
        More fields of the request, or other values than temperature 0, max_tokens 1 and
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
    _answer_file: AnswerFile | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Check the fields; a path may come as text, choices as any sequence."""
        for name, value in fields.checked_fields(self).items():
            object.__setattr__(self, name, value)
        if self.answers is not None:
            object.__setattr__(self, "_answer_file", AnswerFile(self.answers))

    def question(self, text: str) -> dict[str, Any]:
        """Return the request about one text, as the server gets it.

        Examples
        --------
        >>> model = Endpoint("http://127.0.0.1:8000/v1", "qwen", ("yes", "no"))
        >>> question = model.question("Is it raining?")
        >>> question["max_tokens"], question["top_logprobs"]
        (1, 20)
        """
        prompts = [("system", self.system)] if self.system else []
        prompts.append(("user", self.prompt))
        values = {"text": str(text), "choices": ", ".join(self.choices)}
        messages = [
            # One pass over the prompt: a text that holds {choices} is left as it is.
            {"role": role, "content": _PLACEHOLDERS.sub(lambda m: values[m[1]], prompt)}
            for role, prompt in prompts
        ]
        request: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": True,
            "top_logprobs": 20,
            **self.extra,
        }
        return {name: value for name, value in request.items() if value is not None}

    def __call__(self, rows: Any, *, progress: Tell | None = None) -> Predictions:
        """Ask about texts, and return the probabilities of the choices, row by row.

        Parameters
        ----------
        rows : sequence of str
            Texts.
        progress : callable, optional
            Called with the share of the rows that is answered, and the current task.
        """
        texts = fields.as_texts(rows)
        digests = [self.digest(text) for text in texts]
        row_by_digest = {digest: row for row, digest in enumerate(digests)}
        shares = self._saved_shares(row_by_digest)
        missing = {d: row for d, row in row_by_digest.items() if d not in shares}
        # A few first, so that a model that never names a choice costs little.
        first = dict(list(missing.items())[:FIRST_ANSWERS])
        remaining = {d: row for d, row in missing.items() if d not in first}
        for batch in (first, remaining):
            if batch:
                shares |= self._ask(texts, batch, progress)
                self._require_choices(shares)
        self._require_all(shares, digests)
        probs = [shares[digest] for digest in digests]
        return Predictions.from_probs(probs, class_names=self.choices)

    def digest(self, text: str) -> str:
        """Return the name of a text's answer in the file of answers, its custom_id.

        Examples
        --------
        >>> model = Endpoint("http://127.0.0.1:8000/v1", "qwen", ("yes", "no"))
        >>> model.digest("Is it raining?")
        'be6060f797044c1044384a73c11d339a'
        """
        question = [self.url, list(self.choices), self.question(text)]
        content = json.dumps(question, sort_keys=True).encode()
        return blake2b(content, digest_size=16).hexdigest()

    def _saved_shares(self, row_by_digest: Mapping[str, int]) -> dict[str, list[float]]:
        """Return the shares of the choices by answers in the file."""
        if self._answer_file is None:
            return {}
        return {
            digest: choice_shares(self, body, row_by_digest[digest])
            for digest, body in self._answer_file.find(row_by_digest)
        }

    def _ask(
        self, texts: list[str], row_by_digest: dict[str, int], progress: Tell | None
    ) -> dict[str, list[float]]:
        """Ask about some rows, as far as the budget goes."""
        from trustdoctor.adapters.endpoint.workers import WorkerPool

        key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        fields.check_key(self, key)
        pool = WorkerPool(self, key, self._answer_file, texts, row_by_digest)
        return pool.run(progress)

    def _require_choices(self, shares: Mapping[str, list[float]]) -> None:
        """Refuse a model that speaks for no choice, before more is spent on it."""
        enough = len(shares) >= FIRST_ANSWERS
        if not enough or any(len(set(row)) > 1 for row in shares.values()):
            return
        message = (
            f"none of {len(shares)} answers of {self.model} begins with one of the "
            f"choices {', '.join(self.choices)}. Say in the prompt that it must answer "
            "with one of them alone, or name the choices as it writes them."
        )
        raise InputError(message)

    def _require_all(self, shares: Mapping[str, Any], digests: list[str]) -> None:
        """Refuse rows without an answer, which the budget did not reach."""
        missing = sum(digest not in shares for digest in digests)
        if missing:
            message = (
                f"max_calls={self.max_calls} is spent: {len(digests) - missing} rows "
                f"are answered, {missing} are left. The answers are kept in "
                f"{self.answers}; raise max_calls, and run again."
            )
            raise InputError(message)

    def save(self, path: str | Path) -> None:
        """Write the endpoint as JSON, without its key, whole or not at all."""
        fields.save_endpoint(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Endpoint":
        """Read an endpoint; refuse a file that is not valid.

        A relative path of answers is one beside the file.
        """
        return fields.load_endpoint(cls, Path(path))
