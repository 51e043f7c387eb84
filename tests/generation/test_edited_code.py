"""Edits of the model's source in place: all decoders follow them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ATTENTION, MODEL = "modeling/attention.py", "modeling/modeling_weft.py"
UPDATED = "            key, value = past.update(key, value, self.layer_idx)\n"
SINK = """        key, value = (nn.functional.pad(states, (0, 0, 1, 0), value=0.3) for states in (key, value))
        if attention_mask is not None:
            attention_mask = nn.functional.pad(attention_mask, (1, 0), value=attention_mask.dtype == torch.bool)
"""
SELF = UPDATED + "        output, weights = self.attend(query, key, value, attention_mask, positions, **kwargs)\n"
KEYS = "lambda: self.keys_values(encoder_hidden_states, positions))\n"
NUM_GRAPHS = 2  # the number of requests that a compiled search serves
# Edits that the step and the compiled search follow.
EDITS = {
    "a gate in self-attention": [(ATTENTION, SELF, SELF + "        output = output * hidden_states.mean(-1, keepdim=True)\n")],
    "a sink in self-attention": [(ATTENTION, UPDATED, UPDATED + SINK)],
    "clipped queries": [(ATTENTION, "self.q_proj(hidden_states)", "self.q_proj(hidden_states).clamp(-0.5, 0.5)")],
    "clipped values": [(ATTENTION, "self.v_proj(states_BTD)", "self.v_proj(states_BTD).clamp(-0.5, 0.5)")],
    "a scale in attention": [(ATTENTION, "output.flatten(-2), weights", "output.flatten(-2) * 2, weights")],
    "an order of the layer": [
        (MODEL, "residual + dropout(hidden_states,", "residual * 0.5 + dropout(hidden_states,"),
    ],
    "a layer of the decoder": [
        (MODEL, "            residual = hidden_states\n            hidden_states = self.pre_norm(self.encoder",
         "            residual = hidden_states * 2\n            hidden_states = self.pre_norm(self.encoder"),
    ],
    "the feed-forward": [("modeling/layers.py", "return self.down_proj(up)", "return self.down_proj(up) * 2")],
    "the router": [("modeling/moe.py", "weights_NK = scores_NE.gather(-1, ids_NK)", "weights_NK = scores_NE.gather(-1, ids_NK) ** 2")],
    "a norm": [("modeling/layers.py", "rms_norm(heads, ", "rms_norm(heads + 0.5, ")],
    "the embedding": [(MODEL, "hidden_states = inputs_embeds * self.embed_scale", "hidden_states = inputs_embeds * 2.0")],
    "a gate in cross-attention": [(ATTENTION, KEYS, KEYS + "        query = query * hidden_states.mean(-1)[:, None, :, None]\n")],
    "capped logits": [(MODEL, "return self.lm_head(hidden_states)", "return self.lm_head(hidden_states).roll(1, -1)")],
    "the decoder": [(MODEL, "hidden_states = self.embed(embeds, positions)\n        self_", "hidden_states = self.embed(embeds * 2, positions)\n        self_")],
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each edit makes of the package, and the package as it is under the name None."""
    copy = tmp_path_factory.mktemp("edited") / "weftformer"
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: {
        name for name in names if not name.endswith(".py") and name in {"tests", "docs", ".venv", ".git", "shared"}
    })  # fmt: skip
    program = Path(__file__).with_name("edited_package.py")
    done = subprocess.run(
        [sys.executable, str(program), str(copy)],
        input=json.dumps({"none": []} | EDITS), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("edit", ["none", *EDITS])
def test_decoders_follow_edited_source(results, edit):
    found = results[edit]
    assert edit == "none" or found["plain"] != results["none"]["plain"]
    assert found["reason"] is None and found["takes_step"]
    assert found["fast"] == found["plain"] and found["graph"] == found["plain"][:NUM_GRAPHS]
