"""Images, boxes and regions of interest."""
