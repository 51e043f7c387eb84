"""The console command `weftformer`.

It is outside the package, because importing the package registers the family, which needs torch. If this module is
imported first, the package does not register the family until a command calls `register`.
"""


def main() -> int | None:
    from weftformer.scripts.cli import main as run_command

    return run_command()
