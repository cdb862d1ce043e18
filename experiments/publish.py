"""Writes pages of results from finished runs; the same as `opjax-report`."""

from opjax.learn import report

if __name__ == "__main__":
    report.main()
