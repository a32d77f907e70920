"""A real Keycloak: installed in the tests' tool cache, started, and filled by its Admin API."""
