"""Fetch and keep source trees from git hosts, mirrors and the user's own folders, each as a tar."""
