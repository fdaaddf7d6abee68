"""`python -m antiphon.cli.run FILE[:NAME]` serves a file over stdio, for a command that was given the file.

It does the same as `antiphon run FILE --stdio --log-level error`, but does not load typer, which would be a
sixth of the time of `antiphon call FILE`.
"""

from __future__ import annotations

import sys

from antiphon.cli import escape_unencodable
from antiphon.cli.exit_codes import handle_errors
from antiphon.cli.run.serve import serve_stdio
from antiphon.cli.run.settings import Settings

if __name__ == "__main__":
    escape_unencodable()
    with handle_errors():
        serve_stdio(Settings(sys.argv[1], log_level="error"))
