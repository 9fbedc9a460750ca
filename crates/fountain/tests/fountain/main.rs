//! Tests of the crate's public interface.

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
