"""Why no set of versions works, in the words of the profile: what is missing, who asks for what, and sets near it."""
