"""The bytes of an array: storage, copies, waiting, memory shared with other libraries."""
