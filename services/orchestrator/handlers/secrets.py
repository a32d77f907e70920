"""Commands and queries of the secrets of namespaces.

None of them is remembered as other commands are: what is remembered has a hash of its body.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from schemas.base import node_speaker
from schemas.errors import Accepted, ErrorCode
from schemas.orchestrator.secrets import (
    MAX_SECRET_BYTES,
    ListSecrets,
    OpenedSecrets,
    OpenSecrets,
    RemoveSecret,
    RotateSecretKey,
    SecretList,
    SetSecret,
)
from services.orchestrator.domain.plan.secret_names import refuse_missing_secrets
from services.orchestrator.key_ring import SETTING, KeyRing, Keys
from services.orchestrator.ledger import secret_rows
from services.orchestrator.ledger.secret_rows import SealedSecret, SecretPlace
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.logging import log
from shared.messaging.bus import Route, command_route, query_route
from shared.messaging.paging import page_of, place_at
from shared.postgres.database import Connection, Database

MAX_SECRETS: Final = 200


@dataclass(frozen=True, slots=True)
class SecretHandlers:
    database: Database
    key_ring: KeyRing

    async def set_secret(self, command: SetSecret) -> Accepted:
        """Seal a value with the key in use."""
        _check_value(command.value)
        async with self.database.transaction() as connection:
            await secret_rows.lock(connection)
            keys = await self._keys_to_seal(connection)
            sealed = SealedSecret(
                command.namespace,
                command.name,
                keys.seal(command.namespace, command.name, command.value),
            )
            revision = await secret_rows.save(
                connection, sealed, key_id=keys.id_in_use, set_by=command.set_by, now=utcnow()
            )
            if await secret_rows.count(connection, command.namespace) > MAX_SECRETS:
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"expected at most {MAX_SECRETS} secrets of a namespace: remove some",
                )
        return Accepted(command_id=command.command_id, revision=revision)

    async def remove_secret(self, command: RemoveSecret) -> Accepted:
        async with self.database.transaction() as connection:
            revision = await secret_rows.delete(connection, command.namespace, command.name)
        if revision is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"namespace {command.namespace} has no secret {command.name}",
                path="$.name",
            )
        return Accepted(command_id=command.command_id, revision=revision + 1)

    async def rotate_key(self, command: RotateSecretKey) -> Accepted:
        """Seal all with the newest key, of which a platform with a file of its own makes one first.

        The old keys go once every row has the new one: until then whatever is interrupted leaves
        nothing that no key opens.
        """
        ring = self.key_ring
        async with self.database.transaction() as connection:
            await secret_rows.lock(connection)
            keys = await self._keys_to_seal(connection)
            if ring.is_own:
                keys = await asyncio.to_thread(ring.add, keys)
            secrets = await secret_rows.find_of_other_keys(connection, keys.id_in_use)
            if not ring.is_own and not secrets:
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"every secret has the first key of {ring.path}, which is yours to change: put"
                    " a new one before it, of `gpusteward secret make-key`, and rotate again",
                )
            await secret_rows.seal_again(
                connection, [_seal_again(keys, secret) for secret in secrets], keys.id_in_use
            )
        if ring.is_own:
            await asyncio.to_thread(ring.write, Keys(keys.texts[:1]))
        log.info("secrets_sealed_again", secrets=len(secrets), key_id=keys.id_in_use)
        return Accepted(command_id=command.command_id, revision=len(secrets))

    async def list_secrets(self, query: ListSecrets) -> SecretList:
        place = place_at(query.cursor, SecretPlace)
        async with self.database.transaction() as connection:
            secrets = await secret_rows.page(connection, query.namespace, place, query.limit + 1)
        page, next_cursor = page_of(
            [(secret, SecretPlace(secret.namespace, secret.name)) for secret in secrets],
            query.limit,
        )
        return SecretList(secrets=page, next_cursor=next_cursor)

    async def open_secrets(self, query: OpenSecrets) -> OpenedSecrets:
        """Return the values for an attempt that its node runs now. Raises RefusedError."""
        async with self.database.transaction() as connection:
            subject = await secret_rows.of_attempt(connection, query.attempt_id)
            if subject is None or query.speaker not in _speakers_of(subject):
                raise RefusedError(
                    ErrorCode.FORBIDDEN,
                    f"attempt {query.attempt_id} does not run at {query.speaker}",
                )
            namespace = subject.namespace
            sealed = await secret_rows.find_sealed(connection, namespace, subject.names)
            existing_names = await secret_rows.names_of(connection, namespace)
        refuse_missing_secrets(namespace, subject.names, existing_names)
        keys = await asyncio.to_thread(self.key_ring.read)
        if keys is None:
            raise RefusedError(
                ErrorCode.UNSUPPORTED, f"secrets cannot be used: {self.key_ring.path} is gone"
            )
        values = {name: keys.unseal(namespace, name, value) for name, value in sealed.items()}
        return OpenedSecrets(values=values)

    async def _keys_to_seal(self, connection: Connection) -> Keys:
        """Return the keys, of which the first is made here; under the lock. Raises RefusedError
        where secrets are sealed with a key that is not there: another host has another file.
        """
        keys = await asyncio.to_thread(self.key_ring.read)
        missing_ids = set(await secret_rows.key_ids(connection)) - set(keys.ids if keys else ())
        if missing_ids:
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                f"secrets are sealed with a key that {self.key_ring.path} does not have: every"
                f" orchestrator needs the same file, which {SETTING} names",
                details={"key_ids": sorted(missing_ids)},
            )
        return keys if keys is not None else await asyncio.to_thread(self.key_ring.add, None)


def _speakers_of(subject: secret_rows.AttemptSecrets) -> set[str]:
    """Return who may ask: the executors of an attempt that is under way."""
    attempt = subject.attempt
    if attempt.closed_at is not None or attempt.outcome is not None:
        return set()
    nodes = {*attempt.node_ids, *([attempt.executor_id] if attempt.executor_id else ())}
    return {node_speaker(node_id) for node_id in nodes}


def _seal_again(keys: Keys, secret: SealedSecret) -> SealedSecret:
    value = keys.unseal(secret.namespace, secret.name, secret.sealed)
    return SealedSecret(
        secret.namespace, secret.name, keys.seal(secret.namespace, secret.name, value)
    )


def _check_value(value: str) -> None:
    size = len(value.encode())
    if not 1 <= size <= MAX_SECRET_BYTES:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a value of 1 to {MAX_SECRET_BYTES} bytes, got one of {size}",
            path="$.value",
        )
    if "\0" in value:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a value without the character NUL, which no variable can hold",
            path="$.value",
        )


def secret_routes(handlers: SecretHandlers) -> list[Route]:
    return [
        command_route(handlers.set_secret, SetSecret),
        command_route(handlers.remove_secret, RemoveSecret),
        command_route(handlers.rotate_key, RotateSecretKey),
        query_route(handlers.list_secrets, ListSecrets),
        query_route(handlers.open_secrets, OpenSecrets),
    ]
