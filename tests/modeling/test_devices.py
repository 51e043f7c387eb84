"""Models on other devices than the CPU, without such a device: tensors on "meta" have a device, but no values."""

import torch

from weftformer.modeling import losses

from .test_host_reads import SPARSE


def test_losses_are_computed_on_the_device_of_the_head(build):
    """As `device_map` splits a large model. Loads are counted on the device of their router."""
    head, states, labels = torch.nn.Linear(16, 31, device="meta"), torch.randn(2, 3, 16), torch.ones(2, 3).long()
    assert losses.cross_entropy(head(states.to("meta")), labels, 0.1, 9).is_meta
    assert losses.chunked_cross_entropy(states, head, labels, 0.1, 9).is_meta
    router = build(**SPARSE, router_bias_update_rate=0.1).to("meta").routers()[0]
    router.count_load(torch.ones(4))
    assert router.expert_load.is_meta
