"""Which CUDA the images of this host are of."""

from collections.abc import Mapping
from typing import Any, Final

import docker

from shared.accelerator_rules.cuda_versions import image_cuda

MAX_TAGS: Final = 20  # of one engine, the newest


def cuda_of_images(
    repositories: Mapping[str, tuple[str, str]], api: docker.APIClient
) -> dict[str, str]:
    """Return the CUDA version of images by engine and tag (`vllm:v0.8.5`), and by engine for its
    usual tag.

    `repositories` has each engine's repository and usual tag. Images without the version are left
    out.
    """
    versions: dict[str, str] = {}
    for engine, (repository, usual_tag) in repositories.items():
        for reference, image_id in _list_tags(api, repository):
            tag = reference.rpartition(":")[2]
            # docker has no types.
            image = api.inspect_image(image_id)  # type: ignore[no-untyped-call]  # docker has no types
            config = image.get("Config") or {}
            cuda = image_cuda(reference, config.get("Env") or (), config.get("Labels") or {})
            if cuda is not None:
                versions[f"{engine}:{tag}"] = cuda
                if tag == usual_tag:
                    versions[engine] = cuda
    return versions


def _list_tags(api: docker.APIClient, repository: str) -> list[tuple[str, str]]:
    images: list[dict[str, Any]] = api.images(name=repository)
    images.sort(key=lambda image: -int(image.get("Created") or 0))
    tags = [(tag, image["Id"]) for image in images for tag in image.get("RepoTags") or ()]
    return tags[:MAX_TAGS]
