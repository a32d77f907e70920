"""Servers that run already, tried by the executor of a node before a task measures them."""

from typing import Final

from litestar.params import JSONBody

from schemas.executor.servers import AskServer, ListServedModels, ServedModels, ServerAnswer
from schemas.gateway import endpoints
from schemas.gateway.server_trials import ServerAddress, ServerQuestion
from services.gateway.routes.common import Node, TheGateway, route

LIST_SECONDS: Final = 25.0
ANSWER_SECONDS: Final = 75.0  # beyond those that an executor waits


@route(endpoints.LIST_SERVED_MODELS)
async def list_served_models(
    node_id: Node, data: JSONBody[ServerAddress], gateway: TheGateway
) -> ServedModels:
    """Return the models that a server lists, as this node reaches it."""
    query = ListServedModels(executor_id=node_id, url=data.url, api_key=data.api_key)
    return await gateway.query_node(query, ServedModels, LIST_SECONDS)


@route(endpoints.ASK_SERVER)
async def ask_server(
    node_id: Node, data: JSONBody[ServerQuestion], gateway: TheGateway
) -> ServerAnswer:
    """Return a server's answer to a conversation, as this node gets it. Nothing is stored."""
    query = AskServer(
        executor_id=node_id,
        url=data.url,
        api_key=data.api_key,
        model=data.model,
        messages=data.messages,
        max_tokens=data.max_tokens,
    )
    return await gateway.query_node(query, ServerAnswer, ANSWER_SECONDS)
