"""What fits on which accelerator: rules as tables, each row with its source; pure, as a domain is.

They are those of a platform's documentation on hardware accelerators ("the accelerator guide"
here). Where it contradicts the hardware or itself, the row says what the hardware does, and both
can be asked for.
"""
