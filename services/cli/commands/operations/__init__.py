"""Commands for operators: nodes, maintenance, namespaces, tokens and credentials."""
