"""What happens to a decoded batch; knows no queue."""
