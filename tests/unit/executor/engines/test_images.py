from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ErrorCode
from services.executor.engines.engine_table import IMAGES, build_command
from services.executor.engines.engines_file import EnginesFileError, load_engines, load_images
from services.executor.engines.image import container_command
from services.executor.engines.mounted_model import locate
from shared.errors import RefusedError


def arguments(engine: str, parameters: dict[str, Any], model: str = "a/model") -> tuple[str, ...]:
    return container_command(IMAGES[engine], model, parameters, served_model_name="name").argv


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "engines.toml"
    file.write_text(text)
    return str(file)


def refusal(model: str, *roots: Path) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        locate(model, roots)
    assert refused.value.path == "$.model.id_or_path"
    return refused.value


OWN = """
[engines.Mine]
image = "mirror.example:5000/team/server"
tag = "1.2"
port = 9000
entrypoint = ["/bin/serve", "--quiet"]
arguments = ["run"]
model_flag = ""
served_name_flag = "--name"
host_flag = "--bind"
readiness_path = "/ready"
owned = ["admin_key"]
allow = ["*"]
loads_code = ["plugin"]
env = { THREADS = "2" }
mounts = [{ source = "/opt/words", target = "/words" }]
shm_mb = 64
simulated = true
"""


def test_container_engine_listens_on_published_port() -> None:
    address = ("--host", "0.0.0.0", "--port")  # noqa: S104  # of a container

    assert arguments("vllm", {}) == ("a/model", "--served-model-name", "name", *address, "8000")
    assert arguments("sglang", {"tp_size": 2}) == (
        *("python3", "-m", "sglang.launch_server", "--enable-metrics"),
        *(
            "--model-path",
            "a/model",
            "--served-model-name",
            "name",
            "--tp-size",
            "2",
            *address,
            "30000",
        ),
    )
    assert arguments("llamacpp", {}, "/models/a.gguf") == (
        *("--metrics", "--model", "/models/a.gguf", "--alias", "name", *address, "8080"),
    )


def test_llama_server_fetches_what_is_no_path() -> None:
    assert arguments("llamacpp", {})[1:3] == ("--hf-repo", "a/model")


def test_llama_server_takes_flags_our_process_lacks() -> None:
    given = arguments("llamacpp", {"threads": 2, "no_mmap": True, "flash-attn": "on"})

    assert given[5:-4] == ("--threads", "2", "--no-mmap", "--flash-attn", "on")


@pytest.mark.parametrize(
    ("engine", "parameter"),
    [("vllm", "trust-remote-code"), ("sglang", "trust_remote_code"), ("llamacpp", "model_url")],
)
def test_code_loading_is_refused_in_container_too(engine: str, parameter: str) -> None:
    with pytest.raises(RefusedError) as refused:
        arguments(engine, {parameter: True})

    assert refused.value.path == f"$.parameters.{parameter}"


def test_a_rank_is_told_what_a_task_may_not_set() -> None:
    rank = {"node-rank": 1, "dist_init_addr": "10.0.0.1:5000", "tp-size": 16}

    command = container_command(
        IMAGES["sglang"], "m", {"tp_size": 2}, served_model_name="m", rank_parameters=rank
    )

    given = ("--tp-size", "16", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:5000")
    assert command.argv[8:-4] == given


@pytest.mark.parametrize("tag", ["latest", "v0.11.0-cu129", "1_x.Y"])
def test_a_task_chooses_the_tag(tag: str) -> None:
    assert IMAGES["vllm"].reference(tag) == f"vllm/vllm-openai:{tag}"


@pytest.mark.parametrize(
    "tag",
    ["", "a/b", "x@sha256:" + "0" * 64, "x:y", "-x", ".x", "a b", "x\n", "a" * 129, "ä"],
)
def test_a_tag_leads_to_no_other_image(tag: str) -> None:
    with pytest.raises(RefusedError) as refused:
        IMAGES["vllm"].reference(tag)

    assert refused.value.path == "$.runtime_image_tag"
    assert refused.value.code is ErrorCode.BAD_REQUEST


def test_simulated_engine_needs_operator_image(tmp_path: Path) -> None:
    assert "[engines.simulated]" in str(IMAGES["simulated"].missing())

    images = load_images(written(tmp_path, '[engines.simulated]\nimage = "own/simulated"'))

    assert images["simulated"].missing() is None
    assert images["simulated"].reference(None) == "own/simulated:latest"


def test_an_operator_declares_an_engine(tmp_path: Path) -> None:
    own = load_images(written(tmp_path, OWN))["mine"]

    command = container_command(own, "m", {"x": 1}, served_model_name="name")

    address = ("--bind", "0.0.0.0", "--port", "9000")  # noqa: S104  # of a container
    assert command.argv == ("run", "m", "--name", "name", "--x", "1", *address)
    assert (own.reference("2"), own.entrypoint) == (
        "mirror.example:5000/team/server:2",
        ("/bin/serve", "--quiet"),
    )
    assert (command.readiness_path, command.simulated, own.shm_mb) == ("/ready", True, 64)
    assert command.env == {"THREADS": "2"}
    assert [(str(each.source), each.target) for each in own.mounts] == [("/opt/words", "/words")]


@pytest.mark.parametrize("parameter", ["admin-key", "bind", "port", "name", "plugin"])
def test_task_may_not_set_operator_parameters(tmp_path: Path, parameter: str) -> None:
    own = load_images(written(tmp_path, OWN))["mine"]

    with pytest.raises(RefusedError):
        container_command(own, "m", {parameter: "x"}, served_model_name="m")


def test_operator_engine_gets_only_allowed_parameters(tmp_path: Path) -> None:
    own = load_images(written(tmp_path, OWN.replace('"*"', '"max_rows"')))["mine"]

    command = container_command(own, "m", {"max-rows": 1}, served_model_name="m")

    assert "--max-rows" in command.argv
    with pytest.raises(RefusedError, match=r'allow = \["x"\] under \[engines.mine\]'):
        container_command(own, "m", {"x": 1}, served_model_name="m")


def test_operator_allow_list_applies_to_processes(tmp_path: Path) -> None:
    file = written(tmp_path, '[engines.vllm]\nallow = ["chat-template", "trust_remote_code"]')
    given = {"chat_template": "/t.jinja", "trust-remote-code": True}

    process = build_command("vllm", "m", given, port=1, engines=load_engines(file))
    container = container_command(load_images(file)["vllm"], "m", given, served_model_name="m")

    for command in (process, container):
        assert {"--chat-template", "/t.jinja", "--trust-remote-code"} <= set(command.argv)
    with pytest.raises(RefusedError):
        build_command("vllm", "m", {"download_dir": "/x"}, port=1, engines=load_engines(file))


def test_operator_may_allow_code_and_a_mirror(tmp_path: Path) -> None:
    text = '[engines.vllm]\nimage = "mirror.example/vllm"\nallow_loaded_code = true'
    changed = load_images(written(tmp_path, text))["vllm"]

    command = container_command(changed, "m", {"trust_remote_code": True}, served_model_name="m")

    assert "--trust-remote-code" in command.argv
    assert changed.reference(None) == f"mirror.example/vllm:{IMAGES['vllm'].tag}"
    assert dict(changed.engine.env) == dict(IMAGES["vllm"].engine.env)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[engines.a]\nimage = 'x'", "tag, port", id="half an engine"),
        pytest.param("[engines.vllm]\nimage = 'x:latest'", "image", id="a tag in the image"),
        pytest.param("[engines.vllm]\nimage = 'x@sha256:0'", "image", id="a digest"),
        pytest.param("[engines.vllm]\ntag = 'a/b'", "tag", id="no tag"),
        pytest.param("[engines.vllm]\ncommand = 'x'", "command", id="an unknown field"),
        pytest.param("[engines.vllm]\nport_flag = 'p'", "flag", id="no flag"),
        pytest.param("[engines.vllm]\nenv = {GPUSTEWARD_EPOCH='1'}", "GPUSTEWARD_EPOCH", id="env"),
        pytest.param(
            "[engines.vllm]\nmounts = [{source='/', target='/x'}]", "docker.sock", id="all"
        ),
        pytest.param(
            "[engines.vllm]\nmounts = [{source='/run', target='/x'}]", "docker.sock", id="run"
        ),
        pytest.param(
            "[engines.vllm]\nmounts = [{source='/var/run/docker.sock', target='/x'}]",
            "docker.sock",
            id="the socket",
        ),
        pytest.param(
            "[engines.vllm]\nmounts = [{source='x', target='/x'}]", "absolute", id="relative"
        ),
        pytest.param("[engines", "engines.toml", id="no TOML"),
    ],
)
def test_a_wrong_file_says_where_it_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(EnginesFileError) as error:
        load_images(written(tmp_path, text))

    assert said in str(error.value)
    assert "engines.toml" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnginesFileError, match=r"none\.toml"):
        load_images(str(tmp_path / "none.toml"))


def test_a_models_directory_is_mounted_alone(tmp_path: Path) -> None:
    (tmp_path / "team" / "model").mkdir(parents=True)

    relative, absolute = (
        locate(model, (tmp_path,)) for model in ("team/model", f"{tmp_path}/team/model")
    )

    assert relative == absolute
    assert relative.name == str(tmp_path / "team/model")
    assert [(str(m.source), m.target, m.read_only) for m in relative.mounts] == [
        (relative.name, relative.name, True)
    ]


def test_hub_cache_is_mounted_so_that_links_hold(tmp_path: Path) -> None:
    kept = tmp_path / "models--a--b"
    snapshot = kept / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (kept / "blobs").mkdir()
    (kept / "blobs" / "abc").touch()
    (snapshot / "config.json").symlink_to("../../blobs/abc")

    model = locate("models--a--b/snapshots/1", (tmp_path,))

    assert model.name == str(snapshot)
    assert [mount.target for mount in model.mounts] == [str(kept)]


def test_a_file_is_mounted_with_its_other_parts(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "other.gguf"):
        (tmp_path / name).touch()

    parts = locate("m-00001-of-00002.gguf", (tmp_path,)).mounts
    alone = locate("other.gguf", (tmp_path,)).mounts

    assert [mount.source.name for mount in parts] == [
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
    ]
    assert [mount.source.name for mount in alone] == ["other.gguf"]


@pytest.mark.parametrize("model", ["a/model", "model", "org/model:Q4_K_M"])
def test_an_id_of_a_hub_is_passed_on(tmp_path: Path, model: str) -> None:
    assert locate(model, (tmp_path,)).name == model
    assert locate(model, ()).mounts == ()


@pytest.mark.parametrize("model", ["/etc", "../x", "a/../../x", "./x", "~/x"])
def test_a_path_outside_of_the_roots_is_refused(tmp_path: Path, model: str) -> None:
    assert str(tmp_path) in refusal(model, tmp_path).message
    assert "MODEL_ROOTS" in refusal(model).message


@pytest.mark.parametrize("model", ["s3://bucket/model", "https://host/x", "instance://10.0.0.1:1"])
def test_an_address_is_no_model(tmp_path: Path, model: str) -> None:
    assert "address" in refusal(model, tmp_path).message
    assert "address" in refusal(model).message


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "model").mkdir(parents=True)
    (root / "link").symlink_to("/etc")
    (root / "file.gguf").symlink_to("/etc/hostname")
    (root / "model" / "weights").symlink_to("/etc/hostname")

    for model in ("link", "file.gguf", "model"):
        assert "leads to /etc" in refusal(model, root).message
