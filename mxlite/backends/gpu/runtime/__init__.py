"""One GPU as this process uses it: driver, memory, streams, arrays, and what is known of the device."""
