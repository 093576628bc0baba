"""Files that anybody may have written: how they are harmed, which reader gets them, where its limits are."""
