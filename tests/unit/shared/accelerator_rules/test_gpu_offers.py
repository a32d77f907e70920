"""What a unit of a node is, for every way in which plugins and drivers announce divided GPUs."""

from typing import Any

import pytest

from schemas.cluster.nodes import GpuSharing
from shared.accelerator_rules.gpu_offers import DIVIDERS, NodeFacts, Offer, read_offer
from shared.accelerator_rules.node_labels import is_divided, undivided_expressions

GPU, SHARED, DRIVER = "nvidia.com/gpu", "nvidia.com/gpu.shared", "gpu.nvidia.com"
MIG = "nvidia.com/mig-1g.5gb"
T4 = {
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.replicas": "12",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
PLAIN = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
    "ack.node.gpu.schedule": "default",
}
SINGLE = {
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    "nvidia.com/gpu.count": "56",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/gpu.slices.gi": "1",
}
HAMI = (
    '[{"id":"GPU-1","count":10,"devmem":15360,"devcore":100,"type":"NVIDIA-Tesla T4",'
    '"mode":"hami-core","health":true}]'
)
SLICED, MPS = GpuSharing.TIME_SLICING, GpuSharing.MPS


def offered(
    name: str, labels: dict[str, str], units: int, annotations: dict[str, str] | None = None
) -> Offer:
    """Return the offer of a node that counts so many units, all of them allocatable."""
    amounts = {name: units}
    return read_offer(
        name,
        NodeFacts(
            labels=labels,
            annotations=annotations or {},
            capacity=amounts,
            allocatable=amounts,
        ),
    )


def without(labels: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.rpartition(".")[2] not in keys}


@pytest.mark.parametrize(
    ("name", "labels", "units"),
    [
        pytest.param(GPU, {}, 8, id="no label at all"),
        pytest.param(GPU, PLAIN, 8, id="told as not shared, the single strategy without MIG"),
        pytest.param(GPU, without(PLAIN, "sharing-strategy"), 8, id="one replica, no strategy"),
        pytest.param(GPU, PLAIN, 4, id="fewer than there are: others are in MIG mode"),
        pytest.param(MIG, {f"{MIG}.count": "7", f"{MIG}.replicas": "1"}, 7, id="MIG, mixed"),
        pytest.param("nvidia.com/mig-1g.10gb.me", {}, 1, id="MIG with media engines"),
        pytest.param("amd.com/gpu", {"amd.com/gpu.compute-memory-partition": "spx_nps1"}, 8),
        pytest.param("amd.com/gpu", {}, 8, id="AMD without labels"),
        pytest.param("gpu.intel.com/i915", {"gpu.intel.com/device.count": "2"}, 2, id="Intel"),
        pytest.param(DRIVER, T4, 8, id="DRA beside labels that were left behind"),
    ],
)
def test_a_unit_that_nothing_divides_is_a_whole_gpu(
    name: str, labels: dict[str, str], units: int
) -> None:
    assert offered(name, labels, units=units) == Offer()


@pytest.mark.parametrize(
    ("name", "labels", "units", "per_gpu", "sharing", "sign"),
    [
        pytest.param(GPU, T4, 12, 12, SLICED, "sharing-strategy=time-slicing", id="time slicing"),
        pytest.param(
            SHARED,
            T4 | {"nvidia.com/gpu.product": "Tesla-T4"},
            12,
            12,
            SLICED,
            "sharing-strategy=time-slicing",
            id="time slicing under a name of its own",
        ),
        pytest.param(SHARED, {}, 4, 1, SLICED, f"the name {SHARED}", id="by its name alone"),
        pytest.param(
            GPU,
            T4 | {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/mps.capable": "true"},
            12,
            12,
            MPS,
            "sharing-strategy=mps",
            id="MPS",
        ),
        pytest.param(
            SHARED,
            T4 | {"nvidia.com/gpu.sharing-strategy": "mps"},
            12,
            12,
            MPS,
            "mps",
            id="MPS under a name of its own",
        ),
        pytest.param(
            GPU,
            {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "4"},
            4,
            4,
            SLICED,
            "nvidia.com/gpu.replicas=4",
            id="replicas of a Feature Discovery that tells no strategy",
        ),
        pytest.param(
            GPU,
            T4 | {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "2"},
            8,
            2,
            SLICED,
            "time-slicing",
            id="half of the GPUs in MIG mode, which count and have no units",
        ),
        pytest.param(
            GPU,
            T4 | {"nvidia.com/gpu.replicas": "4"},
            12,
            12,
            SLICED,
            "time-slicing",
            id="replicas of before: no more GPUs than are told",
        ),
        pytest.param(
            GPU,
            {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
            12,
            1,
            SLICED,
            "is a share of a GPU",
            id="of how many is not told",
        ),
        pytest.param(
            GPU,
            {
                "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
            },
            8,
            4,
            SLICED,
            "gke-gpu-sharing-strategy=time-sharing",
            id="GKE's time sharing",
        ),
        pytest.param(
            GPU,
            {
                "cloud.google.com/gke-gpu-sharing-strategy": "mps",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
            },
            2,
            2,
            MPS,
            "gke-gpu-sharing-strategy=mps",
            id="GKE's MPS",
        ),
    ],
)
def test_a_unit_of_a_shared_gpu_is_a_share_of_it(
    name: str, labels: dict[str, str], units: int, per_gpu: int, sharing: GpuSharing, sign: str
) -> None:
    offer = offered(name, labels, units=units)

    assert (offer.per_gpu, offer.sharing, offer.is_refused) == (per_gpu, sharing, False)
    assert sign in offer.note
    assert "ask for one by time_slices" in offer.note


@pytest.mark.parametrize(
    ("name", "labels", "units", "gpus", "sign"),
    [
        pytest.param(GPU, SINGLE, 56, 0, "product=NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", id="single"),
        pytest.param(
            GPU, without(SINGLE, "product"), 56, 0, "gpu.slices.gi=1", id="single without product"
        ),
        pytest.param(
            GPU,
            SINGLE
            | {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED",
                "nvidia.com/gpu.replicas": "2",
                "nvidia.com/gpu.sharing-strategy": "time-slicing",
            },
            112,
            0,
            "MIG-1g.5gb-SHARED: a unit of nvidia.com/gpu is a MIG instance",
            id="time slicing of MIG instances, single",
        ),
        pytest.param(
            SHARED,
            SINGLE | {"nvidia.com/gpu.replicas": "2"},
            112,
            0,
            "MIG-1g.5gb",
            id="the same under a name of its own",
        ),
        pytest.param(
            GPU,
            {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID",
                "nvidia.com/gpu.count": "0",
                "nvidia.com/gpu.replicas": "0",
            },
            8,
            0,
            "MIG-INVALID",
            id="MIG that the single strategy cannot tell",
        ),
        pytest.param(
            GPU,
            PLAIN | {"nvidia.com/gpu.replicas": "0"},
            8,
            0,
            "replicas=0",
            id="MIG mode with strategy none",
        ),
        pytest.param(
            GPU,
            {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
            7,
            0,
            "1g.5gb",
            id="GKE's MIG partitions",
        ),
        pytest.param(
            GPU,
            PLAIN | {"nvidia.com/vgpu.present": "true"},
            8,
            0,
            "vgpu.present=true",
            id="vGPUs of virtual machines",
        ),
        pytest.param(
            MIG,
            {
                f"{MIG}.sharing-strategy": "time-slicing",
                f"{MIG}.replicas": "4",
                f"{MIG}.count": "7",
            },
            28,
            0,
            f"{MIG}.sharing-strategy=time-slicing",
            id="time slicing of MIG instances, mixed",
        ),
        pytest.param(f"{MIG}.shared", {}, 28, 0, f"the name {MIG}.shared", id="and renamed"),
        pytest.param(MIG, {f"{MIG}.replicas": "4"}, 28, 0, "replicas=4", id="replicas alone"),
        pytest.param(MIG, {f"{MIG}.product": "A100-MIG-1g.5gb-SHARED"}, 28, 0, "-SHARED"),
        pytest.param(MIG, {f"{MIG}.count": "7"}, 28, 0, "count=7", id="more instances than told"),
        pytest.param(
            "amd.com/gpu",
            {"amd.com/gpu.compute-memory-partition": "cpx_nps4"},
            64,
            0,
            "cpx_nps4",
            id="AMD's CPX",
        ),
        pytest.param(
            "amd.com/gpu",
            {"amd.com/compute-memory-partition": "dpx_nps2"},
            16,
            0,
            "dpx_nps2",
            id="AMD's DPX, the label of its guide",
        ),
        pytest.param(
            "gpu.intel.com/i915",
            {"gpu.intel.com/device.count": "2"},
            20,
            2,
            "device.count=2",
            id="Intel's shared-dev-num",
        ),
        pytest.param(GPU, {"ack.node.gpu.schedule": "cgpu"}, 2, 0, "ack.node.gpu.schedule=cgpu"),
        pytest.param(GPU, {"gpushare": "true"}, 2, 0, "gpushare=true", id="aliyun's gpushare"),
    ],
)
def test_neither_gpu_nor_share_is_refused(
    name: str, labels: dict[str, str], units: int, gpus: int, sign: str
) -> None:
    offer = offered(name, labels, units=units)

    assert (offer.is_refused, offer.sharing, offer.gpus) == (True, None, gpus)
    assert sign in offer.note
    assert "; " in offer.note  # and what to do


@pytest.mark.parametrize(
    ("labels", "units", "sign"),
    [
        pytest.param(PLAIN | {"nvidia.com/gpu.replicas": "4"}, 32, "replicas=4 with nvidia.com"),
        pytest.param(
            without(T4, "replicas", "sharing-strategy"),
            12,
            "product=Tesla-T4-SHARED",
            id="the name alone",
        ),
        pytest.param(PLAIN | {"nvidia.com/gpu.sharing-strategy": "new"}, 8, "strategy=new"),
        pytest.param(PLAIN | {"nvidia.com/mps.capable": "true"}, 8, "mps.capable=true"),
        pytest.param(PLAIN | {"nvidia.com/gpu.count": "1"}, 10, "counts 10 nvidia.com/gpu"),
        pytest.param({"nvidia.com/gpu.count": "0"}, 1, "gpu.count=0", id="no GPU, and a unit"),
    ],
)
def test_half_labelled_gpus_are_not_whole(labels: dict[str, str], units: int, sign: str) -> None:
    told = labels | {"gpusteward.io/gpus": "whole"}

    doubtful = offered(GPU, labels, units=units)

    assert doubtful.is_refused
    assert sign in doubtful.note
    assert "gpusteward.io/gpus=whole" in doubtful.note
    assert offered(GPU, told, units=units) == Offer()


@pytest.mark.parametrize("labels", [T4, SINGLE], ids=["time slicing", "MIG"])
def test_operator_cannot_call_divided_gpus_whole(
    labels: dict[str, str],
) -> None:
    offer = offered(GPU, labels | {"gpusteward.io/gpus": "whole"}, units=12)

    assert offer.sharing is not None or offer.is_refused


def test_refusal_tells_what_to_do() -> None:
    gke = offered(GPU, {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, units=7)

    assert offered(GPU, SINGLE, units=56).note.endswith(
        "; set the device plugin's MIG strategy to mixed, and ask for mig_profile"
    )
    assert gke.note.endswith("; take a node pool without GPU partitions")


def test_gpus_of_two_plugins_are_counted() -> None:
    amounts = {GPU: 2, "tencent.com/vcuda-core": 200}
    facts = NodeFacts(capacity=amounts, allocatable=amounts)

    assert [read_offer(name, facts).gpus for name in amounts] == [2, 2]


@pytest.mark.parametrize(
    ("annotations", "gpus"),
    [
        ({"hami.io/node-nvidia-register": HAMI}, 1),
        (
            {"hami.io/node-nvidia-register": "GPU-1,10,V100,0,true:GPU-2,10,1,1,V,0,true:"},
            2,
        ),
        ({"hami.io/node-nvidia-register": "[{"}, 0),
        ({"volcano.sh/node-vgpu-register": "GPU-1,10,32768,100,V100,0,true:"}, 1),
    ],
)
def test_gpus_registered_for_sharing_are_refused(annotations: dict[str, str], gpus: int) -> None:
    offer = offered(GPU, {}, annotations=annotations, units=10 * max(gpus, 1))

    assert (offer.is_refused, offer.gpus) == (True, gpus)
    assert next(iter(annotations)) in offer.note


@pytest.mark.parametrize(
    ("amounts", "refused"),
    [
        pytest.param({GPU: 8, DRIVER: 8}, {GPU, DRIVER}, id="plugin and DRA driver"),
        pytest.param({GPU: 2, "tencent.com/vcuda-core": 200}, {GPU, "tencent.com/vcuda-core"}),
        pytest.param({GPU: 2, "nvidia.com/mps-core": 200}, {GPU, "nvidia.com/mps-core"}),
        pytest.param({GPU: 2, "volcano.sh/vgpu-number": 20}, {GPU}, id="Volcano's vGPUs"),
        pytest.param({GPU: 2, "aliyun.com/gpu-mem": 160}, {GPU}, id="memory by the GiB"),
        pytest.param({GPU: 2, SHARED: 8}, {GPU}, id="slices beside"),
        pytest.param({MIG: 7, DRIVER: 1}, {MIG, DRIVER}, id="instances and DRA driver"),
        pytest.param({GPU: 4, MIG: 28}, set(), id="the mixed strategy"),
        pytest.param({GPU: 4, DRIVER: 0}, set(), id="a driver without any"),
        pytest.param({GPU: 4, "amd.com/gpu": 4}, set(), id="two vendors"),
        pytest.param({"amd.com/gpu": 8, "gpu.amd.com": 8}, {"amd.com/gpu", "gpu.amd.com"}),
        pytest.param({"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 1}, set(), id="two drivers"),
    ],
)
def test_gpus_that_two_plugins_give_out_are_refused(
    amounts: dict[str, int], refused: set[str]
) -> None:
    facts = NodeFacts(capacity=amounts, allocatable=amounts)

    offers = {name: read_offer(name, facts) for name in amounts.keys() - DIVIDERS if amounts[name]}

    assert {name for name, offer in offers.items() if offer.is_refused} == refused


@pytest.mark.parametrize(
    ("labels", "matches"),
    [
        ({}, True),
        (PLAIN, True),
        (T4, False),
        (SINGLE, False),
        ({"nvidia.com/vgpu.present": "true"}, False),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, False),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, False),
    ],
)
def test_expressions_keep_pods_off_nodes_that_say_so(
    labels: dict[str, str], *, matches: bool
) -> None:
    def fits(expression: dict[str, Any]) -> bool:
        value = labels.get(expression["key"])
        return value not in expression["values"] if "values" in expression else value is None

    assert all(map(fits, undivided_expressions())) is matches
    assert any(is_divided(labels, each["key"]) for each in undivided_expressions()) is not matches
