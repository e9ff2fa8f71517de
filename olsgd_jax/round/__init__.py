"""The round: local steps, one mean, one mix, and the state they carry on."""
