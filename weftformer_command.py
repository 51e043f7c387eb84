"""The console command `weftformer`.

It is outside the package, which registers the family when it is imported, unless this module was imported before.
"""


def main() -> int | None:
    from weftformer.scripts.cli import main as run_command

    return run_command()
