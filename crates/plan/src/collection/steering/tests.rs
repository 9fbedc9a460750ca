//! Ways are well chosen, and not changed for nothing.
