"""Targets and their names come out of every kind of file, gzipped or not."""

import gzip
import io

import pytest
from rdkit import Chem

from weftformer.routes import Stock
from weftformer.routes.chemistry.molecules import canonical_smiles
from weftformer.routes.files import targets
from weftformer.routes.files.targets import Target, read_targets


def targets_in(content: bytes, name: str, **settings) -> list[Target]:
    return targets.targets_in(io.BytesIO(content), name, **settings)


ETHANOL, AMINE = Target("ethanol", "CCO"), Target("A-7", "CCN")


def sd_file(*molecules: tuple[str, str]) -> str:
    blocks = []
    for number, (name, smiles) in enumerate(molecules, 1):
        block = Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))
        blocks.append(name + block[block.index("\n") :] + f">  <Batch>  ({number})\nB{number}\n\n$$$$\n")
    return "".join(blocks)


TEXTS = {
    "a.smi": "CCO ethanol\nCCN\tA-7\n",
    "header.smi": "smiles name\nCCO ethanol\n\n# a remark\nCCN A-7",
    "a.csv": "id,note,SMILES\nethanol,x,CCO\nA-7,\"two, words\",CCN\n",
    "semicolons.csv": "Smiles;Name\r\nCCO;ethanol\r\nCCN;A-7\r\n",
    "headless.csv": "CCO,ethanol\nCCN,A-7\n",
    "pubchem.csv": "id,CanonicalSMILES,IsomericSMILES\nethanol,C,CCO\nA-7,C,CCN\n",
    "tokens.txt": "C C O\tethanol\nC C N\tA-7\n",
    "extended.smi": "CCO |$a;b;c$| ethanol\nCCN |f:0.1|\tA-7\n",
    "a.tsv": "target\tname\nCCO\tethanol\nCCN\tA-7\n",
    "a.sdf": sd_file(("ethanol", "CCO"), ("A-7", "CCN")),
    "fields.sdf": sd_file(("", "CCO")).replace("$$$$", "> <ID>\nethanol\n\n$$$$")
    + sd_file(("", "CCN")).replace("$$$$", ">  25  <Compound_ID>\nA-7\n\n$$$$"),
    "windows.sdf": sd_file(("ethanol", "CCO"), ("A-7", "CCN")).replace("\n", "\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_targets_come_with_their_names(tmp_path, name):
    (tmp_path / name).write_bytes(TEXTS[name].encode())
    with gzip.open(tmp_path / f"{name}.gz", "wb") as file:
        file.write(TEXTS[name].encode())
    assert read_targets(tmp_path / name) == read_targets(tmp_path / f"{name}.gz") == [ETHANOL, AMINE]
    assert targets_in(b"\xef\xbb\xbf" + TEXTS[name].encode(), "standard input") == [ETHANOL, AMINE]


RACEMATE = Chem.MolToV3KMolBlock(Chem.MolFromSmiles("C[C@H](N)CC |&1:1|")) + "\n$$$$\n"


@pytest.mark.parametrize(
    ("content", "settings", "targets"),
    [
        # without names there are numbers
        ("CCO\n\nCCN\n", {}, {"1": "CCO", "2": "CCN"}),
        ("smiles,id\nCCO\nCCN,b\n", {}, {"1": "CCO", "b": "CCN"}),
        ("CCO |w:1.0| x\nCCN |a|\n", {}, {"x": "CCO", "2": "CCN"}),
        (sd_file(("", "CCO")), {}, {"1": "CCO"}),
        # columns are chosen by name
        ("Drug,Made,id\nCCO,CCN,7\n", {"smiles_column": "made", "id_column": "drug"}, {"CCO": "CCN"}),
        (sd_file(("a", "CCO")), {"id_column": "batch"}, {"B1": "CCO"}),
        # racemates keep their marks for a remark
        ("C[C@H](N)CC |&1:1,r| a\n", {}, {"a": "C[C@H](N)CC |&1:1,r|"}),
        (RACEMATE, {}, {"1": "CC[C@H](C)N |&1:2|"}),
        *(("smiles,id\nCCO,ä\n".encode(encoding), {}, {"ä": "CCO"}) for encoding in ("cp1252", "utf-16", "utf-16-le")),
    ],
)  # fmt: skip
def test_targets_of_texts(content, settings, targets):
    data = content if isinstance(content, bytes) else content.encode()
    assert {target.id: target.smiles for target in targets_in(data, "x.smi", **settings)} == targets


def test_the_repeating_unit_of_a_polymer_is_refused():
    bracket = "M  STY  1   1 SRU\nM  SAL   1  1   2\nM  SBL   1  2   1   2\nM  SMT   1 n\nM  END"
    (target,) = targets_in(sd_file(("peg", "CCO")).replace("M  END", bracket).encode(), "x.sdf")
    with pytest.raises(ValueError, match="repeating unit of a polymer"):
        canonical_smiles(target.smiles)


def test_inchi_is_read_from_lists_and_tables():
    inchi = "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"
    for text in (f"{inchi} ethanol\n", f'id,InChI\nethanol,"{inchi}"\n'):
        (target,) = targets_in(text.encode(), "x.csv")
        assert target.id == "ethanol" and canonical_smiles(target.smiles) == "CCO"


def test_a_record_that_cannot_be_read_keeps_its_name_and_its_place():
    broken = sd_file(("ethanol", "CCO")).replace("  3  2", "  9  9") + sd_file(("A-7", "CCN"))
    first, second = targets_in(broken.encode(), "x.sdf")
    assert first.id == "ethanol" and first.smiles == "" and "record 1 is not a molecule" in first.problem
    assert second == AMINE


@pytest.mark.parametrize(
    ("content", "settings", "words"),
    [
        (b"", {}, "no target"),
        (b"drug,id\nCCO,1\n", {}, "no column with a name such as 'smiles': its first line is 'drug,id'"),
        (b"smiles,id\nCCO,1\n", {"smiles_column": "drug"}, "no column 'drug'"),
        (b"smiles,id\nCCO,1\n", {"id_column": "key"}, "no column 'key': it has smiles, id"),
        (gzip.compress(b"CCO" * 50, mtime=0)[:-9], {}, "damaged"),
        (b'smiles,note\nCCO,"' + b"x,\n" * 200_000, {}, "a quote not closed"),
        (b"CCO\n" * 1001, {}, "more than 1,000 targets"),
    ],
)  # fmt: skip
def test_files_that_are_refused(content, settings, words, monkeypatch, tmp_path):
    monkeypatch.setattr(targets, "MOST_TARGETS", 1000)
    with pytest.raises(ValueError, match=rf"x\.csv .*{words}"):
        targets_in(content, "x.csv", **settings)
    with pytest.raises(FileNotFoundError, match=r"nothing\.smi does not exist"):
        read_targets(tmp_path / "nothing.smi")


def test_a_parquet_file_is_a_table(tmp_path):
    import pyarrow
    from pyarrow import parquet

    file = tmp_path / "targets.parquet"
    parquet.write_table(pyarrow.table({"ID": [7, None], "SMILES": ["CCO ", None], "other": ["CCN", "CCC"]}), file)
    assert read_targets(file) == [Target("7", "CCO"), Target("2", "")]
    assert read_targets(file, smiles_column="other", id_column="smiles") == [Target("CCO", "CCN"), Target("2", "CCC")]
    with pytest.raises(ValueError, match=r"has no column 'mol'"):
        read_targets(file, smiles_column="mol")
    file.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="is not a parquet file"):
        read_targets(file)


@pytest.mark.parametrize("header", ["id,structure", "structure,id", "molfile"])
def test_a_cell_with_a_molfile_is_read(tmp_path, header):
    block = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")).replace("RDKit", "\u201cprogram\u201d")
    cells = [f'"{block}"' if name != "id" else "ethanol" for name in header.split(",")]
    (tmp_path / "targets.csv").write_text(f"{header}\n{','.join(cells)}\n", encoding="utf-8")
    [target] = read_targets(tmp_path / "targets.csv")
    assert (target.id, target.smiles) == ("ethanol" if "id" in header else "1", "CCO")
    assert "CCO" in Stock.from_file(tmp_path / "targets.csv", progress=False, cache=False)
