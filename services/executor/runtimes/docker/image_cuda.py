"""Which CUDA the images of this host are of."""

from collections.abc import Mapping
from typing import Any, Final

import docker

from shared.accelerator_rules.cuda_versions import image_cuda

MOST_TAGS: Final = 20  # of one engine, the newest


def cuda_of_images(
    repositories: Mapping[str, tuple[str, str]], api: docker.APIClient
) -> dict[str, str]:
    """By engine and tag (`vllm:v0.8.5`), and by engine for its usual tag, of each repository and
    usual tag; those that do not have it are left out.
    """
    found: dict[str, str] = {}
    for engine, (repository, usual) in repositories.items():
        for reference, image_id in _tagged(api, repository):
            tag = reference.rpartition(":")[2]
            # docker has no types.
            image = api.inspect_image(image_id)  # type: ignore[no-untyped-call]  # docker has no types
            config = image.get("Config") or {}
            cuda = image_cuda(reference, config.get("Env") or (), config.get("Labels") or {})
            if cuda is not None:
                found[f"{engine}:{tag}"] = cuda
                if tag == usual:
                    found[engine] = cuda
    return found


def _tagged(api: docker.APIClient, repository: str) -> list[tuple[str, str]]:
    images: list[dict[str, Any]] = api.images(name=repository)
    images.sort(key=lambda each: -int(each.get("Created") or 0))
    named = [(tag, each["Id"]) for each in images for tag in each.get("RepoTags") or ()]
    return named[:MOST_TAGS]
