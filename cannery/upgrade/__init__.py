"""What is newer than a lock (`outdated`), and the edits of a profile that let it be newer (`lock --upgrade`)."""
