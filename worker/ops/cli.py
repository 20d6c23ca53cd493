"""The `rewardpool` command. Subcommands are imported when called, so `--help` stays quick."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from worker.ops.installation import PACKAGES, InstallationError, check_installation

COMMANDS = {
    "check": "try a reward function before a large run",
    "dashboard": "serve rq-dashboard with a Limits page",
    "demo": "score the example rollouts on an embedded server",
    "doctor": "check a deployment",
    "info": "show queues and workers, safely",
    "limits": "show and change limits live",
    "metrics": "serve Prometheus metrics",
    "score": "score a rollout file",
    "worker": "run one worker process on queues",
}
#: What a command needs beside the extra `worker`.
EXTRAS = {"dashboard": "worker,dashboard", "metrics": "worker,metrics"}


class LazyGroup(click.Group):
    """A group whose subcommands live in `worker.ops.commands.<name>`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name, without importing anything."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import one subcommand; what it needs and is not installed is named."""
        if name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"worker.ops.commands.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] in PACKAGES:
                raise  # a fault of ours, not something to install
            extras = EXTRAS.get(name, "worker")
            raise click.UsageError(
                f"`rewardpool {name}` needs {error.name}: pip install 'rewardpool[{extras}]'"
            ) from error
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names with their one-line help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup)
@click.version_option(package_name="rewardpool")
def cli() -> None:
    """Rewards for LLM reinforcement learning, outside the trainer, under cluster-wide limits."""


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; exit codes: 0 done, 1 some rows failed, 2 wrong usage or settings."""
    try:
        check_installation()
        return cli.main(args=argv, prog_name="rewardpool")
    except InstallationError as error:
        sys.stderr.write(f"rewardpool: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
