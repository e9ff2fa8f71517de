"""Links with a given rate between hosts on one machine."""
