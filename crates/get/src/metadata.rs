//! What a server says about an object besides its identity: name, digest, compression, media type.

use super::{resource::one, version::compressions};
use hyper::{
    HeaderMap,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use thalweg_part::Digest;
use thalweg_wire::{content_disposition, repr_digest};

/// The properties that an answer states for its object.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// A file name that is safe in any directory (`Content-Disposition`, RFC 6266).
    pub(super) name: Option<String>,
    /// The SHA-256 of the whole object (`Repr-Digest`, RFC 9530).
    pub(super) digest: Option<Digest>,
    /// The content codings by which its bytes are compressed, although none was requested.
    pub(super) compression: Option<String>,
    /// Whether the media type is that of a web page.
    pub(super) is_page: bool,
}

impl Metadata {
    /// Reads the fields of an answer. Fields that cannot be parsed are ignored.
    pub(super) fn read(fields: &HeaderMap) -> Self {
        let disposition = fields.get(CONTENT_DISPOSITION);
        let name = disposition.and_then(|v| content_disposition::file_name(v.as_bytes()));
        let digest = repr_digest::repr_digest(&list(fields, "repr-digest"))
            .or_else(|| repr_digest::digest(&list(fields, "digest")));
        let is_page = one(fields, &CONTENT_TYPE)
            .is_some_and(|t| t.trim_start().to_ascii_lowercase().starts_with("text/html"));
        let (digest, compression) = (digest.map(Digest::Sha256), compressions(fields));
        Self { name, digest, compression, is_page }
    }
}

/// The lines of a list field as one list (RFC 9110 §5.3).
fn list(fields: &HeaderMap, name: &str) -> String {
    let lines = fields.get_all(name).iter().filter_map(|v| v.to_str().ok());
    lines.collect::<Vec<_>>().join(",")
}

/// All are equal, because these properties are no part of an object's identity.
impl PartialEq for Metadata {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Metadata {}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    const SUM: &str = "RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=";

    fn metadata(fields: &[(&'static str, &str)]) -> Metadata {
        let field = |(n, v): &(&'static str, &str)| {
            (HeaderName::from_static(n), HeaderValue::from_bytes(v.as_bytes()).unwrap())
        };
        let mut map = HeaderMap::new();
        fields.iter().map(field).for_each(|(n, v)| _ = map.append(n, v));
        Metadata::read(&map)
    }

    #[test]
    fn names_and_digests_are_read_from_fields() {
        let sum = |s: &Metadata| match s.digest {
            Some(Digest::Sha256(sum)) => data_encoding::BASE64.encode(&sum),
            _ => String::new(),
        };
        let new = format!("sha-256=:{SUM}:");
        let both = metadata(&[("repr-digest", "sha-512=:AA:"), ("repr-digest", &new)]);
        assert_eq!(sum(&both), SUM);
        assert_eq!(sum(&metadata(&[("digest", &format!("SHA-256={SUM}"))])), SUM);
        let name = metadata(&[("content-disposition", "attachment; filename=\"a/caf\u{e9}.iso\"")]);
        assert_eq!((name.name.as_deref(), name.digest.is_none()), (Some("café.iso"), true));
        let none = metadata(&[("content-disposition", "inline"), ("repr-digest", "sha-256=:AA:")]);
        assert_eq!((none.name, none.digest.is_none()), (None, true));
    }
}
