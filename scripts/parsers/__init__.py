"""The arguments of the commands, a module each: nothing here waits for torch, so that `--help` is quick."""
