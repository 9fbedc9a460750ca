//! What kind of address an address is: [`thalweg_wire::address_class`], as joins are judged by.

pub use thalweg_wire::address_class::{Class, classify, embedded};
