"""The top floor: command line, embedded server, dashboard, metrics."""
