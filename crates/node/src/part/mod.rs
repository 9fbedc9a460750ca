//! A file in the making.
