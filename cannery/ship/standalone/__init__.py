"""Scripts that go along with what Cannery makes, to machines that have no Cannery."""
