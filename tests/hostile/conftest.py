"""The servers that attacks on the command line compare with."""

from tests.cli.conftest import url as url
