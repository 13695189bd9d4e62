"""The `upsert-platform` command."""

from __future__ import annotations

import atexit
import difflib
import gc
import importlib
import logging
from collections.abc import Mapping
from typing import Any

import click

from upsert_platform.cli.next_step import for_typed_project, next_step, with_typed_project
from upsert_platform.core.errors import UpsertPlatformError

# Command name to where it is defined: a command is imported when it is run, so that each starts quickly.
_COMMANDS: Mapping[str, str] = {
    "adopt": "upsert_platform.cli.adopt:adopt",
    "apply": "upsert_platform.cli.apply:apply",
    "audit": "upsert_platform.cli.audit:audit",
    "demo": "upsert_platform.cli.project:demo",
    "discover": "upsert_platform.cli.discover:discover",
    "doctor": "upsert_platform.cli.doctor:doctor",
    "erase": "upsert_platform.cli.erase:erase",
    "explain": "upsert_platform.cli.explain:explain",
    "explain-error": "upsert_platform.cli.explain_error:explain_error",
    "import": "upsert_platform.cli.importing:import_files",
    "init": "upsert_platform.cli.init:init",
    "local": "upsert_platform.cli.local:local",
    "options": "upsert_platform.cli.options:options",
    "package": "upsert_platform.cli.package:package",
    "pause": "upsert_platform.cli.pause:pause",
    "peek": "upsert_platform.cli.peek:peek",
    "plan": "upsert_platform.cli.plan:plan",
    "prove": "upsert_platform.cli.prove:prove",
    "query": "upsert_platform.cli.query:query",
    "quarantine": "upsert_platform.cli.quarantine:quarantine",
    "reconcile": "upsert_platform.cli.verify:reconcile",
    "reset": "upsert_platform.cli.reset:reset",
    "resume": "upsert_platform.cli.pause:resume",
    "replay": "upsert_platform.cli.replay:replay",
    "run": "upsert_platform.cli.run:run",
    "send": "upsert_platform.cli.send:send",
    "session": "upsert_platform.cli.warm:session",
    "setup": "upsert_platform.cli.setup:setup",
    "status": "upsert_platform.cli.status:status",
    "stream": "upsert_platform.cli.stream:stream",
    "submit-args": "upsert_platform.cli.submit_args:submit_args",
    "sync": "upsert_platform.cli.run:sync",
    "ui": "upsert_platform.cli.project:ui",
    "validate": "upsert_platform.cli.project:validate",
    "verify": "upsert_platform.cli.verify:verify",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, attribute = _COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if near:
                raise click.UsageError(f"{error.message.rstrip('.')}; did you mean '{near[0]}'?", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        from upsert_platform.local.process import ServerError

        try:
            return super().invoke(ctx)
        except (UpsertPlatformError, ServerError) as error:  # made for users: a trace would add nothing
            from upsert_platform.core.error_catalogue import identified

            command = next_step(error)
            text = with_typed_project(identified(error))
            raise click.ClickException(f"{text}\nnext: {for_typed_project(command)}" if command else text) from error
        except click.ClickException as error:
            if type(error) is not click.ClickException:
                raise  # click shows the usage with it
            from upsert_platform.core.error_catalogue import identified

            raise click.ClickException(with_typed_project(identified(error))) from error


atexit.register(gc.freeze)  # what is alive when a command ends need not be looked through before the process goes


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="upsert-platform")
def main() -> None:
    """Keeps Tablestore, MaxCompute and Kafka tables equal to the last value per key of Kafka topics."""
    logging.getLogger("tablestore").setLevel(logging.ERROR)  # warns at import of an encoder that is not needed


if __name__ == "__main__":
    main()
