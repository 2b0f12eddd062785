"""Parties and coordinator on different machines, over NVFLARE: signed messages, kits, rehearsal, diagnosis. No mathematics."""
