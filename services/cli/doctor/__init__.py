"""`gpusteward doctor`: what this host has, and what to type for each thing that is missing."""
