//! What a network is: its file format, generators, and resolved form.
