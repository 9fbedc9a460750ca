//! Encoders and decoders of all data that crosses the network, and signed objects. Pure: no I/O, no clock.
//!
//! Converts bytes to messages, and messages to bytes.
//!
//! ```text
//! bytes   ─► decode ─► a message and its length │ the number of bytes missing │ an error
//! message ─► encode ─► bytes
//! value   ─► Signed::sign ─► bytes ─► Signed::open: checks signature and canonical form ─► value
//! ```
//!
//! Each decoder reads from a slice that it does not own. No input makes one panic or allocate more memory than the size
//! of the input justifies. `tests/arbitrary.rs` tests this, and says how to fuzz for longer.

mod destination;
mod reader;

pub mod address_class;
pub mod bistro;
pub mod bond;
pub mod cast;
pub mod content_disposition;
pub mod content_range;
pub mod doctor;
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
