//! Every byte that crosses the network: codecs and signed objects (pure).
//!
//! Each codec reads from a slice it does not own and says either what it
//! found, how many bytes it still lacks, or what is wrong; none allocates
//! more than its input warrants, and none panics on any bytes (see
//! `tests/arbitrary.rs`, which also says how to fuzz for longer).
//!
//! ```text
//! bytes of a peer, a server, a file ─► decode ─► a message, or why it is none
//! a message                         ─► encode ─► bytes; Signed<T>: canonical, with a domain tag
//! ```

mod destination;
mod reader;

pub mod address_class;
pub mod bistro;
pub mod bond;
pub mod cast;
pub mod content_disposition;
pub mod content_range;
pub mod file_name;
pub mod manifest;
pub mod mesh;
pub mod metalink;
pub mod object;
pub mod probe;
pub mod repr_digest;
pub mod retry_after;
pub mod signed;
pub mod socks5;

pub use destination::{Destination, DestinationError, Host, MAX_NAME};
pub use manifest::{Manifest, ManifestBuilder, ObjectId};
pub use signed::{DecodeError, Signable, Signature, Signed, SignedError, Signer, Verifier};
