"""Pure decisions about attempts: admission, deadlines, verdicts, gangs, log lines."""
