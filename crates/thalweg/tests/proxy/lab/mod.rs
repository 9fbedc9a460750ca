//! Unchanged programs over the mesh in an emulated Internet: the direct path is slow, relays are
//! fast, and what was fetched is what the server has.

mod apt;
mod browser;
mod downloads;
mod git;
mod revoked;
mod scene;
