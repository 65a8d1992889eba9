"""The image store of this host, in `<cache>/images`. It needs no engine."""
