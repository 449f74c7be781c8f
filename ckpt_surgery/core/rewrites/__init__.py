"""Manifests rewritten: what layout functions do to a stored array whose bytes stay where they are.

Every function here gives the manifest of its result, or None where stored bytes, as they are, cannot be
chunks of it. What holds for each: the result decoded is the function of the input decoded. Chunks at
the edges of an array are as large as all others; what lies beyond the edge is never seen.
"""
