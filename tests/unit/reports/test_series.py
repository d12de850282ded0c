import json

import pytest

from seqrl.reports.series import read_metrics

ROWS = [{"step": 1, "a": 0.5}, {"step": 2, "a": None}]


@pytest.mark.parametrize(
    "damaged", [b"\xff\xfe{", b"[1]", b"3", b'{"step": "text"}', b'{"a": [1]}', b"{", b"[" * 10**5]
)
def test_damaged_lines_are_left_out_with_a_warning(tmp_path, caplog, damaged):
    file = tmp_path / "metrics.jsonl"
    first, second = (json.dumps(row).encode() for row in ROWS)
    file.write_bytes(b"\n".join([first, damaged, second, damaged, b""]))
    assert read_metrics(file) == ROWS
    assert f"{file}: line 2 and 1 more is damaged" in caplog.text


def test_a_torn_last_line_is_left_out_in_silence(tmp_path, caplog):
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps(ROWS[0]) + "\n" + '{"step": 2, "a"')
    assert read_metrics(file) == ROWS[:1]
    assert not caplog.text


def test_a_folder_is_no_log(tmp_path):
    assert read_metrics(tmp_path) == []
