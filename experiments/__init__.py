"""One module per experiment: ``python -m experiments.<module>``."""
