"""`--otel`: sets OpenTelemetry up in a process, as the standard `OTEL_*` variables say.

Owns the defaults: OTLP over HTTP, for traces, metrics and logs. A program that has set a provider itself, for
example under `opentelemetry-instrument`, keeps it.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

from antiphon.cli.exit_codes import CommandError
from antiphon.instrumentation import is_configured
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["start_otel"]

logger = logging.getLogger("antiphon")

_DEFAULTS = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_LOGS_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}
_OF_EXPORTERS = ("opentelemetry", "urllib3", "requests")
"""The loggers of the exporters. Their records are not exported: each export would cause the next one."""


def start_otel(server: Server) -> None:
    """Export the traces, metrics and logs of this process. Raises `CommandError`.

    Call it after the file was loaded and logging was configured, and before the server starts.
    """
    try:
        from opentelemetry.sdk._configuration import _OTelSDKConfigurator
    except ImportError:
        raise CommandError(
            "--otel needs the SDK and the exporter of OpenTelemetry: pip install 'antiphon[tracing]'."
        ) from None
    server.engine.telemetry.flushes = True
    if is_configured():
        logger.info("OpenTelemetry is configured already: --otel changes nothing.")
        return
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", printable(server.name))
    try:
        # The class from which distributions of OpenTelemetry derive theirs.
        configurator: Any = _OTelSDKConfigurator
        configurator().configure(setup_logging_handler=False)
    except (ImportError, RuntimeError, ValueError) as error:
        raise CommandError(
            f"Cannot set up OpenTelemetry: {printable(str(error)).rstrip('.')}. Check the OTEL_* variables. "
            "The exporter for OTLP comes with pip install 'antiphon[tracing]'."
        ) from None
    _export_logs()


def _export_logs() -> None:
    """Export the records of all loggers, with the trace that they belong to."""
    try:
        from opentelemetry.instrumentation.logging.handler import LoggingHandler
    except ImportError:
        from opentelemetry.sdk._logs import LoggingHandler
    with warnings.catch_warnings():
        # The handler of the SDK moves into the other package, from which it comes if that is installed.
        warnings.simplefilter("ignore", DeprecationWarning)
        handler: logging.Handler = LoggingHandler()
    handler.addFilter(lambda record: record.name.partition(".")[0] not in _OF_EXPORTERS)
    logging.getLogger().addHandler(handler)
