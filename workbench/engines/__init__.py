"""What turns token ids into token ids, and the host that serves it to many clients."""
