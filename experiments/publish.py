"""Writes pages of results from finished runs. The same as `opjax-report`."""

from opjax.learn.cli import report

if __name__ == "__main__":
    report.main()
