"""The bus: typed messages over NATS, their streams, acknowledgement and redelivery."""
