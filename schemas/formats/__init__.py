"""Writers of the published forms of the messages, one module each; `schemas.export` calls them."""
