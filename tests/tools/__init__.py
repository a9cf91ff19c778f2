"""Tools for developers: generated pages, drawings, the matrix of versions, the last steps of `make setup`."""
