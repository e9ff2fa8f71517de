"""The benchmark: measures what communication costs on your devices."""
