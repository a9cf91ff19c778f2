"""Between two runs: what was read (`reading`), how it differs now (`compared`), and what a night does (`decision`)."""
