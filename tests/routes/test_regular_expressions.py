"""Molecules, routes and files from outside take a time that grows no faster than their length."""

import pytest

from weftformer.routes.chemistry.molecules import plain_smiles
from weftformer.routes.chemistry.sd_files import _fields
from weftformer.routes.tree import joined_tokens, smiles_and_name

from ..test_regular_expressions import check_growth, expressions

MODULES = (
    "routes.training.extraction", "routes.pages.page", "routes.chemistry.faults", "routes.files.entries",
    "routes.files.formats", "routes.files.reaction_lines", "routes.files.streams", "routes.chemistry.forms",
    "routes.chemistry.molecules", "routes.chemistry.normal_form", "routes.planning.constraints",
    "routes.judging.judgement", "routes.judging.library", "routes.judging.templates", "routes.chemistry.skeleton",
    "routes.stock.stock", "routes.tree",
)  # fmt: skip
READERS = {
    "smiles_and_name": smiles_and_name, "joined_tokens": lambda text: joined_tokens(f"C {text}"),
    "fields": lambda text: _fields(f">{text}\nvalue".split("\n")), "plain_smiles": plain_smiles,
}  # fmt: skip


@pytest.mark.parametrize(
    "function", [pytest.param(read, id=name) for name, read in (*expressions(MODULES), *READERS.items())]
)
def test_the_time_grows_no_faster_than_the_text(function):
    check_growth(function)
