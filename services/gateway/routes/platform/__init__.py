"""Routes of the platform itself: logins, tokens, documentation, the web page."""
