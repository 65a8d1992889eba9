"""Source trees fetched and kept: git hosts, mirrors, the user's own folders and tarballs, each made a tar."""
