"""The rules by which the stand-in for OME's controller turns an InferenceService into pods."""

import copy
from typing import Any

import pytest

from tests.support.kubernetes.api import Object
from tests.support.kubernetes.ome_rules import (
    CONTAINER,
    Installed,
    Refused,
    model_label,
    services_of,
    status_of,
    workload_of,
)

MODEL: Object = {
    "kind": "ClusterBaseModel",
    "metadata": {"name": "llama"},
    "spec": {
        "modelFormat": {"name": "safetensors"},
        "storage": {"storageUri": "hf://meta/llama", "path": "/models/llama"},
    },
}
RUNTIME: Object = {
    "metadata": {"name": "sglang"},
    "spec": {
        "supportedModelFormats": [
            {
                "modelFormat": {"name": "safetensors"},
                "autoSelect": True,
                "acceleratorConfig": {
                    "l40s": {
                        "tensorParallelismOverride": {"tensorParallelSize": 4},
                        "runtimeArgsOverride": ["--mem-frac=0.85", "--new-flag=1"],
                        "environmentOverride": {"NCCL_DEBUG": "WARN"},
                    }
                },
            }
        ],
        "acceleratorRequirements": {"acceleratorClasses": ["h100", "l40s"]},
        "engineConfig": {
            "nodeSelector": {"pool": "runtime"},
            "tolerations": [{"key": "runtime"}],
            "runner": {
                "image": "sglang:1",
                "command": ["python3", "-m", "sglang.launch_server"],
                "args": ["--port=8000", "--tp-size=8", "--mem-frac=0.9"],
                "env": [{"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}],
                "ports": [{"containerPort": 8000}],
                "resources": {"limits": {"cpu": "8", "nvidia.com/gpu": "8"}},
            },
        },
    },
}


def service(**spec: Any) -> Object:
    """One that names model and runtime."""
    return {
        "metadata": {
            "name": "chat",
            "namespace": "team",
            "uid": "u1",
            "generation": 1,
            "labels": {"who": "me"},
        },
        "spec": {
            "model": {"name": "llama"},
            "runtime": {"name": "sglang"},
            "engine": {},
            **spec,
        },
    }


def installed(runtime: Object = RUNTIME, model: Object = MODEL) -> Installed:
    classes = {
        name: {
            "metadata": {"name": name},
            "spec": {
                "resources": [{"name": "nvidia.com/gpu", "quantity": "4"}],
                "discovery": {"nodeSelector": {"gpu": name}},
            },
        }
        for name in ("h100", "l40s")
    }
    return Installed(
        runtimes={(None, runtime["metadata"]["name"]): runtime},
        models={(None, "llama"): model},
        accelerator_classes=classes,
    )


def pod_spec(given: Object, there: Installed | None = None) -> Object:
    spec: Object = workload_of(given, there or installed())["spec"]["template"]["spec"]
    return spec


def runner(given: Object, there: Installed | None = None) -> Object:
    container: Object = pod_spec(given, there)["containers"][0]
    return container


def env(container: Object) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def test_runtime_fills_in_what_service_omits() -> None:
    made = workload_of(service(), installed())

    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["name"] == CONTAINER
    assert container["image"] == "sglang:1"
    assert container["args"] == ["--port=8000", "--tp-size=8", "--mem-frac=0.9"]
    assert made["metadata"]["name"] == "chat-engine"
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["ome.io/inferenceservice"] == "chat"
    assert labels["serving-runtime"] == "sglang"
    assert labels["who"] == "me"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["spec"]["replicas"] == 1


def test_arguments_and_commands_replace_whole_lists() -> None:
    container = runner(service(engine={"runner": {"args": ["--tp-size=2"]}}))

    assert container["args"] == ["--tp-size=2"]
    assert container["command"] == ["python3", "-m", "sglang.launch_server"]


def test_variables_merge_by_name_service_first() -> None:
    own = [{"name": "B", "value": "own"}, {"name": "C", "value": "own"}]

    container = runner(service(engine={"runner": {"env": own}}))

    assert env(container) == {
        "A": "runtime",
        "B": "own",
        "C": "own",
        "MODEL_PATH": "/models/llama",
        "PARALLELISM_SIZE": "8",
    }


def test_the_size_of_parallelism_replaces_any_value() -> None:
    own = {"runner": {"env": [{"name": "PARALLELISM_SIZE", "value": "1"}]}}

    assert env(runner(service(engine=own)))["PARALLELISM_SIZE"] == "8"


def test_a_path_of_the_model_that_is_given_stays() -> None:
    own = {"runner": {"env": [{"name": "MODEL_PATH", "value": "/elsewhere"}]}}

    assert env(runner(service(engine=own)))["MODEL_PATH"] == "/elsewhere"


def test_limits_merge_tolerations_are_replaced() -> None:
    own = {
        "tolerations": [{"key": "own"}],
        "nodeSelector": {"zone": "a"},
        "runner": {"resources": {"limits": {"nvidia.com/gpu": "2"}}},
    }

    spec = pod_spec(service(engine=own))

    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "8", "nvidia.com/gpu": "2"}
    assert spec["tolerations"] == [{"key": "own"}]
    assert spec["nodeSelector"] == {"pool": "runtime", "zone": "a", model_label(MODEL): "Ready"}


@pytest.mark.parametrize(
    ("arguments", "rewritten"),
    [
        (["--tp-size=2"], ["--tp-size=4", "--mem-frac=0.85", "--new-flag=1"]),
        (["--tp", "2"], ["--tp", "4", "--mem-frac=0.85", "--new-flag=1"]),
        (
            ["--tensor-parallel-size", "2", "--mem-frac=0.5"],
            ["--tensor-parallel-size", "4", "--mem-frac=0.85", "--new-flag=1"],
        ),
        (["--other"], ["--other", "--mem-frac=0.85", "--new-flag=1"]),
    ],
)
def test_accelerator_override_rewrites_service(arguments: list[str], rewritten: list[str]) -> None:
    given = service(
        acceleratorSelector={"acceleratorClass": "l40s"},
        engine={"runner": {"args": arguments, "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}},
    )

    container = runner(given)

    assert container["args"] == rewritten
    assert env(container)["NCCL_DEBUG"] == "WARN"
    assert "PARALLELISM_SIZE" not in env(container)


def test_a_flag_in_the_command_is_rewritten_there() -> None:
    shell = ["sh", "-c", "exec serve --tp-size 2 --port 80"]
    given = service(
        acceleratorSelector={"acceleratorClass": "l40s"},
        engine={"runner": {"command": shell, "args": []}},
    )

    assert runner(given)["command"][2] == "exec serve --tp-size 4 --port 80"


def test_accelerator_class_chooses_nodes() -> None:
    given = service(acceleratorSelector={"acceleratorClass": "h100"})

    spec = pod_spec(given)

    assert spec["nodeSelector"]["gpu"] == "h100"
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    own = {"runner": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}
    own_spec = pod_spec({**given, "spec": {**given["spec"], "engine": own}})
    assert own_spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_runtime_without_classes_gets_none() -> None:
    runtime = copy.deepcopy(RUNTIME)
    del runtime["spec"]["acceleratorRequirements"]
    given = service(acceleratorSelector={"acceleratorClass": "l40s"})

    assert runner(given, installed(runtime))["args"][1] == "--tp-size=8"


def test_values_of_the_runner_are_templates() -> None:
    arguments = [
        "--name={{.Name}}",
        "{{ .Labels.who }}",
        "{{index .Labels `a/b`}}",
        "{{.Labels.x}}",
    ]

    container = runner(service(engine={"runner": {"args": arguments}}))

    assert container["args"] == ["--name=chat", "me", "", "<no value>"]
    with pytest.raises(Refused, match="malformed placeholder"):
        runner(service(engine={"runner": {"args": ['{"a": {{"b": 1}}']}}))


def test_a_model_in_a_volume_claim_is_on_every_node() -> None:
    model = copy.deepcopy(MODEL)
    model["spec"]["storage"]["storageUri"] = "pvc://team:weights/llama"

    spec = pod_spec(service(), installed(model=model))

    assert model_label(MODEL) not in spec["nodeSelector"]
    [volume] = spec["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == "weights"


def test_without_a_model_nothing_is_said_of_one() -> None:
    given = service()
    del given["spec"]["model"]

    spec = pod_spec(given)

    assert "MODEL_PATH" not in env(spec["containers"][0])
    assert "volumes" not in spec
    assert "modelStatus" not in status(given)


def test_named_runtime_is_used_as_it_is() -> None:
    named = copy.deepcopy(RUNTIME)
    named["spec"]["supportedModelFormats"] = []
    assert runner(service(), installed(named))["image"] == "sglang:1"
    unnamed = service()
    del unnamed["spec"]["runtime"]

    with pytest.raises(Refused, match="no runtime supports"):
        runner(unnamed, installed(named))
    other = copy.deepcopy(RUNTIME)
    other["metadata"]["name"] = "own"
    other["spec"]["engineConfig"]["runner"]["image"] = "sglang:2"
    there = installed()
    both = Installed({**there.runtimes, ("team", "own"): other}, there.models)
    assert runner(unnamed, both)["image"] == "sglang:2"
    assert runner(service(), both)["image"] == "sglang:1"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"model": {"name": "other"}}, "BaseModelNotFound"),
        ({"model": {"name": "llama", "kind": "BaseModel"}}, "BaseModelNotFound"),
        ({"runtime": {"name": "other"}}, "RuntimeNotRecognized"),
        ({"runtime": {"name": "sglang", "kind": "ServingRuntime"}}, "RuntimeNotRecognized"),
        ({"acceleratorSelector": {"acceleratorClass": "b200"}}, "AcceleratorClassError"),
    ],
)
def test_what_is_not_there_is_named(spec: Object, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        workload_of(service(**spec), installed())

    assert refused.value.reason == reason
    told = status(service(**spec), refused=refused.value)
    assert conditions(told)["Ready"] == "False"
    assert told["modelStatus"]["transitionStatus"] == "InvalidSpec"


def status(given: Object, *, refused: Refused | None = None, **parts: Any) -> Object:
    deployment = parts.get("deployment")
    pods = parts.get("pods", [])
    return status_of(given, deployment, pods, url="http://x", refused=refused, now="2026-01-01")


def conditions(told: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in told["conditions"]}


def test_the_status_follows_the_deployment() -> None:
    deployment = workload_of(service(), installed())
    deployment["metadata"]["generation"] = 1

    waiting = status(service(), deployment=deployment)
    deployment["status"] = {"observedGeneration": 1, "availableReplicas": 1, "updatedReplicas": 1}
    ready = status(service(), deployment=deployment)

    assert conditions(waiting) == {"EngineReady": "False", "IngressReady": "True", "Ready": "False"}
    assert "url" not in waiting
    assert waiting["modelStatus"]["transitionStatus"] == "InProgress"
    assert conditions(ready) == {"EngineReady": "True", "IngressReady": "True", "Ready": "True"}
    assert ready["url"] == "http://x"
    assert ready["modelStatus"]["transitionStatus"] == "UpToDate"


def test_a_container_that_ends_blocks_the_model() -> None:
    ended = {"name": CONTAINER, "lastState": {"terminated": {"exitCode": 7, "message": "no"}}}
    pod = {"metadata": {"name": "chat-1"}, "status": {"containerStatuses": [ended]}}

    told = status(service(), pods=[pod])["modelStatus"]

    assert told["transitionStatus"] == "BlockedByFailedLoad"
    assert told["lastFailureInfo"]["exitCode"] == 7
    assert told["lastFailureInfo"]["location"] == "chat-1"


def test_front_service_leads_to_the_engine() -> None:
    deployment = workload_of(service(), installed())

    made = services_of(service(), deployment)

    assert [each["metadata"]["name"] for each in made] == ["chat-engine", "chat"]
    assert made[1]["spec"]["ports"][0] == {"name": "http", "port": 8080, "targetPort": 8000}
