//! Classes of addresses: re-exports of [`thalweg_wire::address_class`], by which joins are judged too.

pub use thalweg_wire::address_class::{Class, classify, embedded};
