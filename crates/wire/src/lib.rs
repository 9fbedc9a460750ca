//! Every byte that crosses the network: codecs and signed objects (pure).
//!
//! In go bytes, or messages; out come messages, or bytes.
//!
//! ```text
//! bytes   ─► decode ─► a message and its length │ more bytes are needed │ an error
//! message ─► encode ─► bytes
//! value   ─► Signed::sign ─► bytes ─► Signed::open: signature, one encoding a value ─► value
//! ```
//!
//! Each codec reads from a slice that it does not own. None allocates more than its input warrants,
//! and none panics on any bytes (see `tests/arbitrary.rs`, which also says how to fuzz for longer).

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
pub mod stream;
pub mod text_encoding;

pub use destination::{Destination, DestinationError, Host, MAX_NAME};
pub use manifest::{Manifest, ManifestBuilder, ObjectId};
pub use signed::{DecodeError, Signable, Signature, Signed, SignedError, Signer, Verifier};
