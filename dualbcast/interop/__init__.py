"""Arrays of other libraries in calls of a BroadcastFunction: an adapter for each library.

Comes in: an element function, and arrays of one library. Goes out: arrays of the same library.
"""
