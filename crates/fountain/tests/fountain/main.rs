//! The fountain by its public face.

mod codec;
mod digests;
mod emission;
mod geometry;
mod have;
mod pull;
mod ring;
mod ring_offers;
mod stream;
mod swarm;
