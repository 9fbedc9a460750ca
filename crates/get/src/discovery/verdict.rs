//! Verdicts: what a path's answer says about the object, and whether two answers mean the same object.

use crate::{
    PathError,
    resource::{Resource, WholeObject},
    worker::Body,
};

/// What a path's answer says about the object.
pub(crate) enum Verdict {
    /// The path has not answered, or has sent no request.
    Pending,
    /// The server offers ranges of this object.
    Ranged(Resource),
    /// The server offers this object only as a whole. The body is here until it is taken.
    Whole(WholeObject, Option<Body>),
    /// The path delivers nothing.
    Failed(PathError),
}

/// Whether the direct path's verdict contradicts `resource`.
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

/// How `other` differs from `pinned`; `None` if both are the same object.
pub(crate) fn difference(pinned: &Resource, other: &Resource) -> Option<String> {
    if pinned.url != other.url {
        return Some(format!("it redirects to {}", other.url));
    }
    if pinned.length != other.length {
        return Some(format!("its length is {}, not {} bytes", other.length, pinned.length));
    }
    pinned.version().difference(other.version())
}
