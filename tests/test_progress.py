import time

from trustdoctor import progress


def test_a_bar_appears_when_work_takes_long_and_only_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SLOW", 600.0)
    with progress.bar() as tell:
        tell(0.5, "quick work")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SLOW", 0.0)
    shown, until = "", time.monotonic() + 60
    with progress.bar() as tell:
        tell(0.5, "thinking hard")
        while "thinking hard" not in shown and time.monotonic() < until:
            time.sleep(0.05)
            shown += capsys.readouterr().err
    assert "thinking hard" in shown


def test_nothing_is_shown_to_a_pipe_or_when_quiet(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SLOW", 0.0)
    for quiet in (True, False):
        with progress.bar(quiet=quiet) as tell:
            tell(0.5, "thinking hard")
            time.sleep(0.1)
    assert capsys.readouterr().err == ""
