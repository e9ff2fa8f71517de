"""The benchmark: what communication costs on the devices that are here."""
