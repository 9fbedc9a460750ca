//! Unmodified programs over the mesh in an emulated Internet, where the direct path is slow and relays are fast. The
//! fetched content must equal the server's.

mod apt;
mod browser;
mod downloads;
mod git;
mod revocation;
mod scene;
