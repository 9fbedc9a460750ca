//! Classes of IP addresses (loopback, private, cloud metadata, …): re-exports of [`thalweg_wire::address_class`].

pub use thalweg_wire::address_class::{Class, classify, embedded};
