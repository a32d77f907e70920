"""What the files say that `compose init` writes and that are no templates of `compose/`."""

from typing import Final

# Only for the server of `compose/compose.yaml`.
NATS_ALSO: Final = """\
# For the health check; nobody else reaches it.
http: "127.0.0.1:8222"
"""
ENV: Final = """\
# Read by docker-compose and `docker compose` in this directory.
COMPOSE_PROJECT_NAME={project}
STEWARD_IMAGE=gpusteward
# Who the containers run as: the owner of these files.
STEWARD_UID={uid}
STEWARD_GID={gid}
STEWARD_INSTALLATION_ID={installation_id}
STEWARD_NODE_ID={node_id}
# Of profile gpu: Docker's socket, the group that may use it, where models lie.
STEWARD_DOCKER_SOCKET={docker_socket}
STEWARD_DOCKER_GID={docker_gid}
STEWARD_MODELS=/srv/models
# Hosts from which its tasks may take datasets and traces, with commas between them.
STEWARD_DATASET_HOSTS=
"""
PLATFORM_ENV: Final = """\
STEWARD_NATS_IMAGE=nats:2.12-alpine
STEWARD_POSTGRES_IMAGE=postgres:18
STEWARD_PROMETHEUS_IMAGE=prom/prometheus:v3.7.3
# Where this machine listens. Others reach neither until their address here is not a loopback one.
STEWARD_API_ADDRESS=127.0.0.1
STEWARD_API_PORT=8470
STEWARD_NATS_ADDRESS=127.0.0.1
STEWARD_NATS_PORT=4222
# Further names and addresses of this host, with commas between them, that its certificates are to
# be for: `gpusteward compose init` makes them anew for these.
STEWARD_TLS_NAMES={tls_names}
# Of profile cluster: its name here, and what leads to it, with a token or a certificate in it.
STEWARD_CLUSTER_ID={cluster_id}
STEWARD_KUBECONFIG=/etc/gpusteward/kubeconfig
"""
NODE_ENV: Final = """\
STEWARD_NATS_URL={nats_url}
# Where its agent's metrics are, on port 9400, for whoever reaches that address.
STEWARD_METRICS_ADDRESS={metrics_address}
"""
HA_ENV: Final = """\
# Both files together are what runs; behind them, with another colon, a compose.override.yaml.
COMPOSE_FILE=compose.yaml:ha.yaml
STEWARD_PATRONI_IMAGE=gpusteward-patroni
STEWARD_BALANCER_IMAGE=caddy:2.10
# Of the second and the third NATS server, beside STEWARD_NATS_PORT.
STEWARD_NATS_PORT_2=4223
STEWARD_NATS_PORT_3=4224
# The name in the balancer's certificate, by which browsers reach it, and where it listens.
STEWARD_HOST=localhost
STEWARD_HTTPS_ADDRESS=127.0.0.1
STEWARD_HTTPS_PORT=8443
"""
NATS_CLUSTER: Final = """\
cluster {{
  name: gpusteward
  listen: "0.0.0.0:6222"
  tls {{
    cert_file: "/etc/gpusteward/tls/server.pem"
    key_file: "/etc/gpusteward/tls/server.key"
    ca_file: "/etc/gpusteward/tls/ca.pem"
    verify: true
    timeout: 5
  }}
  # Clients have all addresses; those of the containers are of no use to others.
  no_advertise: true
  authorization {{ user: route, password: "{password}", timeout: 5 }}
  routes: [{routes}]
}}
"""
PATRONI: Final = """\
# Which of two servers is the primary is decided in etcd. A commit is acknowledged once both have
# it, while both are there.
scope: gpusteward
restapi:
  listen: "0.0.0.0:8008"
  certfile: {certificate}
  keyfile: {key}
  cafile: {authority}
  verify_client: optional  # but for who changes something
ctl: {{certfile: {certificate}, keyfile: {key}, cacert: {authority}}}
etcd3:
  hosts: "etcd-1:2379,etcd-2:2379,etcd-3:2379"
  protocol: https
  cacert: {authority}
  cert: {certificate}
  key: {key}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      # A client that was killed must not keep its locks until its statement ends.
      parameters: {{client_connection_check_interval: 500ms, jit: "off", max_connections: 200}}
  initdb: [{{encoding: UTF8}}, data-checksums]
  post_bootstrap: /etc/patroni/first-start.sh
postgresql:
  listen: "0.0.0.0:5432"
  data_dir: /var/lib/postgresql/18/patroni
  pgpass: /tmp/pgpass
  parameters:
    unix_socket_directories: /var/run/postgresql
    ssl: "on"
    ssl_cert_file: {certificate}
    ssl_key_file: {key}
  pg_hba:
    - local all all trust
    - hostssl replication replicator all scram-sha-256
    - hostssl all all all scram-sha-256
  authentication:
    superuser: &verified
      username: postgres
      password: "{superuser}"
      sslmode: verify-full
      sslrootcert: {authority}
    replication: {{<<: *verified, username: replicator, password: "{replication}"}}
"""
HBA: Final = """\
# In the container everybody; from outside with TLS and a password.
local all all trust
hostssl all all all scram-sha-256
"""
