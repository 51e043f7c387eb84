import pytest
from transformers import AutoConfig

from weft import WeftConfig


@pytest.fixture(autouse=True, scope="session")
def registered_once():
    # pytest imports the repository root, itself a package, a second time under the name of its folder, and that copy
    # registers its own classes: "weft" must mean weft.
    AutoConfig.register("weft", WeftConfig, exist_ok=True)
