"""How jobs are taken and finished; knows no reward."""
