//! Combines adjacent digests as BLAKE3 combines subtrees.

use super::Digest;
use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};

/// The chaining value of the subtree over these digests, which begins at a multiple of its size. BLAKE3 paper §2.1: the
/// left subtree is the largest power of two that leaves a non-empty right one. `None` for an empty slice.
pub(super) fn subtree(digests: &[Digest]) -> Option<Digest> {
    match digests {
        [] => None,
        [only] => Some(*only),
        many => {
            let (left, right) = halves(many)?;
            Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
        }
    }
}

/// Like [`subtree`], if it is the whole object: the hash itself.
pub(super) fn root(digests: &[Digest]) -> Option<Digest> {
    match digests {
        [] => None,
        [only] => Some(*only),
        many => {
            let (left, right) = halves(many)?;
            Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
        }
    }
}

/// At most 28 levels deep, because of `MAX_SYMBOLS`.
fn halves(many: &[Digest]) -> Option<(Digest, Digest)> {
    let (left, right) = many.split_at(many.len().next_power_of_two() / 2);
    Some((subtree(left)?, subtree(right)?))
}
