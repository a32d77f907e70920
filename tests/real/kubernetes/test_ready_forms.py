"""The objects of a task's report in a real API: taken as they are."""

from typing import Final

import pytest
import yaml

from tests.support.kubernetes.api import Api
from tests.support.kubernetes.ome_stand_in import install_crds, missing_crds
from tests.support.ready_forms import TUNED

DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}


async def test_every_deployment_is_accepted_with_service(api: Api) -> None:
    for tuned in TUNED:
        for each in yaml.safe_load_all(tuned.forms().deployment):
            made = await api.create(each, **DRY_RUN)

            assert made["metadata"]["name"] == tuned.name


@pytest.mark.long
async def test_every_inference_service_is_accepted(api: Api) -> None:
    if (reason := missing_crds()) is not None:
        pytest.skip(reason)
    await install_crds(api)

    for tuned in TUNED:
        for each in yaml.safe_load_all(tuned.forms().inference_service):
            made = await api.create(each, **DRY_RUN)

            assert made["metadata"]["name"] == tuned.name
