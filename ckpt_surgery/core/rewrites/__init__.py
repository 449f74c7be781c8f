"""Manifests rewritten: what layout functions do to a stored array whose bytes stay where they are.

Every function here returns the manifest of its result, or None where the stored bytes, unchanged, cannot be
chunks of the result. For each of them, decoding the new manifest gives the same array as decoding the old one
and applying the function. Chunks at the edges of an array are as large as all others; elements beyond the
edge are never read.
"""
