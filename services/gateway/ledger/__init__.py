"""The gateway's rows: events, tokens, logins, the audit log, imports."""
