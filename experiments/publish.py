"""Writes pages of results, as `opjax-report` does. `opjax-publish` is not this."""

from opjax.learn.cli import report

if __name__ == "__main__":
    report.main()
