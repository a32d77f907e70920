"""What decisions are made on: fleet, state and inputs."""
