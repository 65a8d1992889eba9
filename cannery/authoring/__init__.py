"""Files for new versions: the facts of a release or a commit, and a new CANN line."""
