"""How a command gets into the ledger: validated, batched, answered once committed."""
