"""The typed script of user calls runs; `make lint` checks its types."""

import re

import pytest
import user_calls


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_the_calls_run(tmp_path, capsys):
    user_calls.main(tmp_path)
    printed = capsys.readouterr().out
    assert r"\begin{tabular}" in (tmp_path / "table.tex").read_text()
    assert "at most 10% errors among the accepted" in printed
    assert re.search(r"Cascaded\([\d,]+ of 1,200 predictions accepted", printed)
