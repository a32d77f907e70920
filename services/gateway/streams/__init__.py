"""What happens, as it happens: WebSockets and Server-Sent Events."""
