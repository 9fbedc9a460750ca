//! The fountain by its public face.

mod codec;
mod digests;
mod geometry;
mod have;
