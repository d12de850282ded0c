"""Numbers on the terminal."""

import pytest

from seqrl.reports.comparison_figures import format_number
from seqrl.reports.console import format_count, format_duration, format_megabytes


@pytest.mark.parametrize(
    ("number", "text"),
    [(7, "7"), (999.7, "1000"), (1_234_567, "1.23M"), (999_400, "999k"), (999_700, "1M"), (999.6e6, "1G")],
)
def test_counts_have_three_digits(number, text):
    assert format_count(number) == text


def test_no_number_is_told_with_an_exponent():
    assert [format_number(x) for x in (0.1234, 999.4, 999.7, -999.9, 12345.6)] == [
        "0.123",
        "999",
        "1000",
        "-1000",
        "12346",
    ]
    assert [format_megabytes(x) for x in (0.5, 999.4, 999.7, 2500)] == ["0.5 MB", "999 MB", "1 GB", "2.5 GB"]
    assert [format_duration(x) for x in (59.4, 59.6, 3599.6)] == ["59 s", "1:00 min", "1:00 h"]
