"""Pure decisions of an agent: health, faults, schedule and sampling rate, sessions, holdings."""
