"""A Ray cluster of two nodes, one of which is killed while a job runs."""

import pytest

pytest.importorskip("rdkit")

from weftformer.distributed import cluster

from .test_ray import stub

pytestmark = pytest.mark.slow


def test_a_node_that_dies_loses_and_repeats_nothing(tmp_path):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    nodes = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    try:
        second = nodes.add_node(**small)
        nodes.wait_for_nodes()
        items, done = list(enumerate(["fine"] * 80)), []
        for results in cluster.run(stub(tmp_path, 0.2), items, cluster.WorkerSettings(2, address=nodes.address)):
            done += results
            if second is not None and len(done) >= 20 and len(list(tmp_path.glob("loaded-*"))) == 2:
                nodes.remove_node(second, allow_graceful=False)
                second = None
        assert second is None and len(done) > 20
        assert sorted(result.index for result in done) == list(range(80))
        assert {result.state for result in done} == {"done"}
    finally:
        nodes.shutdown()
