"""A client that another program generates from our OpenAPI document."""
