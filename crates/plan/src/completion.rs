//! What unmeasured legs would give, predicted from the measured ones (pure).

use crate::{Graph, ranking::Ranking};

/// The client-oblivious ranking (UKAIRO Eq. 3) on the completed matrix: measured legs as they
/// are, the others as predicted. Goes with [`Thrifty`](crate::schedule::Thrifty).
pub fn ranking(graph: &Graph) -> Ranking {
    Ranking::oblivious(graph)
}
