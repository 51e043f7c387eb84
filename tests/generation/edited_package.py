"""Edits a copy of the package in place, in a process for each edit, and prints what the decoders then write.

Arguments: the folder of the copy. Standard input: the edits as JSON, each a list of (file, old text, new text).
"""

import json
import os
import sys
from pathlib import Path

import torch

COPY = Path(sys.argv[1])
FIELDS = {
    "vocab_size": 31, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "init_std": 0.4, "use_qk_norm": True,
    "decoder_mlp_layer_types": ["dense", "sparse"], "num_experts": 3, "infer_attention_mask": True, "dropout": 0.0,
}  # fmt: skip
# pads behind and in the middle, so that there are masks
SOURCE = torch.randint(3, 31, (3, 8), generator=torch.Generator().manual_seed(1))
SOURCE[1, 6:] = SOURCE[2, 3:5] = 0
PREFIX = torch.tensor([[1, 5, 6], [0, 1, 7], [0, 0, 1]])


def results() -> dict:
    """Return the tokens of the plain path, the fast path and the graph of the search, and who wrote them."""
    import weftformer
    from weftformer.modeling.decoding import dispatch, graph, search, step

    torch.manual_seed(0)
    config = weftformer.WeftConfig(**FIELDS)
    model = weftformer.WeftForConditionalGeneration._from_config(config, experts_implementation="eager")
    model = model.eval().double()
    steps, own = [], step.DecodeStep.step
    step.DecodeStep.step = lambda self, *given: steps.append(self) or own(self, *given)
    search.OWN_PREFIX = 2  # a longer prefix is shared by beams

    def looped(goes_on, write, state):
        while goes_on(*state):
            state = write(*state)
        return state

    graph.while_loop = looped
    graph.GraphSearch._package = lambda self, module, *others: module
    found = {"plain": [], "fast": [], "graph": [], "reason": dispatch.reason_against_model(model, with_encoder=True)}
    requests = [{}, {"num_beams": 3}, {"decoder_input_ids": PREFIX, "decoder_attention_mask": (PREFIX != 0).long()}]
    for request in (*requests, requests[1] | requests[2]):
        settings = {"max_new_tokens": 9, "eos_token_id": [2, 4]} | request
        found["plain"].append(model.generate(SOURCE, cache_implementation="dynamic", **settings).tolist())
        found["fast"].append(model.generate(SOURCE, **settings).tolist())
        if "decoder_input_ids" not in request and dispatch.reason_against_graphs(model) is None:
            prepared, _ = model._prepare_generation_config(None, **settings)
            model._prepare_special_tokens(prepared, True)
            prepared.max_length = 10
            with torch.no_grad():
                written = graph.GraphSearch(model).write(prepared, SOURCE, SOURCE != 0)
            found["graph"].append(written.tolist())
    return found | {"takes_step": bool(steps)}


def main() -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, str(COPY.parent))
    import weftformer  # noqa: F401, for what it imports

    for name, edits in json.load(sys.stdin).items():
        files = {COPY / file: (COPY / file).read_text() for file, _, _ in edits}
        for file, old, new in edits:
            text = (COPY / file).read_text()
            assert text.count(old) == 1, (file, old, text.count(old))
            (COPY / file).write_text(text.replace(old, new))
        sys.stdout.flush()
        if not (child := os.fork()):
            sys.dont_write_bytecode = True
            for module in [module for module in sys.modules if module.partition(".")[0] == "weftformer"]:
                del sys.modules[module]
            print(json.dumps([name, results()]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        for file, text in files.items():
            file.write_text(text)


main()
