//! The fountain by its public face.

mod digests;
mod geometry;
mod have;
