//! Encoding plans: the part of encoding that depends only on K, computed once.

use raptorq::SourceBlockEncodingPlan;
use std::{collections::VecDeque, fmt, sync::Arc};

/// The number of cached plans. An object has two block sizes in symbols; several casts have a few more.
const KEPT: usize = 8;

/// The operations that turn the source symbols of a block into its intermediate symbols.
#[derive(Clone)]
pub struct EncodingPlan {
    source_symbols: u32,
    operations: Arc<SourceBlockEncodingPlan>,
}

impl EncodingPlan {
    /// Creates a plan for blocks of this many source symbols; at most 56,403 (RFC 6330 §4.4.1.2).
    pub(super) fn new(source_symbols: u32) -> Option<Self> {
        let fits = (1..=56_403).contains(&source_symbols);
        let k = u16::try_from(source_symbols).ok().filter(|_| fits)?;
        let operations = Arc::new(SourceBlockEncodingPlan::generate(k));
        Some(Self { source_symbols, operations })
    }

    /// The number K of source symbols of the blocks that it is for.
    pub fn source_symbols(&self) -> u32 {
        self.source_symbols
    }

    pub(super) fn operations(&self) -> &SourceBlockEncodingPlan {
        &self.operations
    }
}

impl fmt::Debug for EncodingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} symbols)", self.source_symbols)
    }
}

/// A cache of the last plans, since each takes time to compute and memory to keep.
#[derive(Clone, Debug, Default)]
pub struct PlanCache {
    kept: VecDeque<EncodingPlan>,
}

impl PlanCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The plan for blocks of K source symbols, computed if it is not cached. `None` if K is 0 or too large for the
    /// code.
    pub fn get(&mut self, source_symbols: u32) -> Option<EncodingPlan> {
        let kept = self.kept.iter().position(|plan| plan.source_symbols == source_symbols);
        let plan = match kept.and_then(|at| self.kept.remove(at)) {
            Some(plan) => plan,
            None => EncodingPlan::new(source_symbols)?,
        };
        self.kept.truncate(KEPT - 1);
        self.kept.push_front(plan.clone());
        Some(plan)
    }
}
