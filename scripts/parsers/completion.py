"""The arguments of `weftformer completion`."""

import argparse

from ..arguments import Parser

# As in shtab, which may not be installed.
SHELLS = ("bash", "zsh", "tcsh")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="weftformer completion",
        description="Print a script with which a shell completes the commands of weftformer and their options.",
        epilog="examples:\n"
        "  weftformer completion bash > ~/.local/share/bash-completion/completions/weftformer\n"
        "  weftformer completion zsh > ~/.zfunc/_weftformer        # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that you use")
    return parser
