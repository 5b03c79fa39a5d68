"""The exceptions, as a tree.

::

    TrustDoctorError
    ├── InputError (ValueError)        an argument or an array is not as expected
    │   ├── RowError                   one row is not; `row` says which
    │   ├── LabelsMissingError         the task needs labels, and there are none
    │   ├── UndefinedMetricError       no number exists, as AUROC without errors
    │   ├── NoPolicyError              no policy of a cascade keeps the promise
    │   └── ServiceError               a service refused a request, or did not answer
    ├── FileError (ValueError)         a file cannot be read or understood
    │   └── OutputError                a file cannot be written
    └── MissingPackageError (ImportError)   an extra is not installed

    OddLabelsWarning (UserWarning)     labels that cannot be right, in a calibration

Each message says what was expected, what came, and what to do. The command line
prints it in one line and exits with 2.
"""


class TrustDoctorError(Exception):
    """The base class of all exceptions of this library."""


class InputError(TrustDoctorError, ValueError):
    """An argument or an array is not as expected."""


class RowError(InputError):
    """A row is not as expected.

    Attributes
    ----------
    row : int
        The row's number, which replaces ``{row}`` in the message.
    """

    def __init__(self, message: str, row: int = -1) -> None:
        super().__init__(message.replace("{row}", str(row)))
        self.message = message
        self.row = row

    def after(self, rows: int) -> "RowError":
        """Return the same error of a row that this number of rows comes before."""
        return RowError(self.message, self.row + rows)

    def __reduce__(self) -> tuple[type["RowError"], tuple[str, int]]:
        """Let the error cross to another process."""
        # By default pickle calls the class with the message alone, and loses the row.
        return RowError, (self.message, self.row)


class LabelsMissingError(InputError):
    """The task needs labels, and there are none."""


class UndefinedMetricError(InputError):
    """The metric has no value on these rows, as AUROC without errors."""


class NoPolicyError(InputError):
    """No policy of a cascade keeps the requested promise."""


class ServiceError(InputError):
    """A service refused a request, or did not answer.

    Attributes
    ----------
    status : int or None
        The status of the response; None if there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class FileError(TrustDoctorError, ValueError):
    """A file cannot be read or understood."""


class OutputError(FileError):
    """A file cannot be written; an existing file of that name is untouched."""


class OddLabelsWarning(UserWarning):
    """Labels are so odd that a promise or a comparison would rest on nothing.

    They fit better if shifted by one class or one row, agree with the predictions by
    chance alone or always, or errors are less doubtful than correct predictions. The
    command line then writes nothing, unless --allow-odd-labels is given.
    """


class MissingPackageError(TrustDoctorError, ImportError):
    """A package that this feature needs is not installed."""


def missing_package(*, what: str, package: str, extra: str) -> MissingPackageError:
    """Return the error that says what to install: one extra, or another package.

    Examples
    --------
    >>> print(missing_package(what="the engine ray", package="ray", extra="ray"))
    the engine ray needs ray, which is not installed: pip install "trustdoctor[ray]"
    """
    message = (
        f"{what} needs {package}, which is not installed: "
        f'pip install "trustdoctor[{extra}]"'
    )
    return MissingPackageError(message)
