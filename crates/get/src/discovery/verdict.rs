//! What one path says of the object, and whether two mean the same.

use crate::{
    PathError,
    resource::{Resource, Whole},
    worker::Body,
};

/// What is known of a path.
pub(crate) enum Verdict {
    /// It has not answered, or not asked.
    Pending,
    /// Ranges of this object can be had.
    Ranged(Resource),
    /// This object, whole; its body until it is taken.
    Whole(Whole, Option<Body>),
    /// Nothing can be had.
    Failed(PathError),
}

/// Whether the direct path's verdict says that `resource` is another object.
pub(crate) fn contradicts(direct: &Verdict, resource: &Resource) -> bool {
    match direct {
        Verdict::Ranged(r) => difference(r, resource).is_some(),
        Verdict::Whole(w, _) => {
            let same = w.url == resource.url && w.version().may_be(resource.version());
            !same || w.length.is_some_and(|n| n != resource.length)
        }
        Verdict::Pending | Verdict::Failed(_) => false,
    }
}

/// In which way `other` is another object than `pinned`; `None` if it is the same.
pub(crate) fn difference(pinned: &Resource, other: &Resource) -> Option<String> {
    if pinned.url != other.url {
        return Some(format!("it redirects to {}", other.url));
    }
    if pinned.length != other.length {
        return Some(format!("its length is {}, not {} bytes", other.length, pinned.length));
    }
    pinned.version().difference(other.version())
}
