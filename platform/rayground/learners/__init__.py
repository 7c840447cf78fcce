"""Learners without bookkeeping per minibatch, and their losses as pure functions."""
