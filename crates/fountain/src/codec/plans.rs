//! Encoding plans: what depends on K alone, made once.

use raptorq::SourceBlockEncodingPlan;
use std::{collections::VecDeque, fmt, sync::Arc};

/// An object has two numbers of source symbols in a block, several casts a few more.
const KEPT: usize = 8;

/// The operations that turn the source symbols of a block into its intermediate symbols.
#[derive(Clone)]
pub struct Plan {
    source_symbols: u32,
    operations: Arc<SourceBlockEncodingPlan>,
}

impl Plan {
    /// For blocks of this many source symbols; at most 56,403 (RFC 6330 §4.4.1.2).
    pub(super) fn new(source_symbols: u32) -> Option<Self> {
        let fits = (1..=56_403).contains(&source_symbols);
        let k = u16::try_from(source_symbols).ok().filter(|_| fits)?;
        let operations = Arc::new(SourceBlockEncodingPlan::generate(k));
        Some(Self { source_symbols, operations })
    }

    /// K of the blocks that it is for.
    pub fn source_symbols(&self) -> u32 {
        self.source_symbols
    }

    pub(super) fn operations(&self) -> &SourceBlockEncodingPlan {
        &self.operations
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} symbols)", self.source_symbols)
    }
}

/// The plans in use: the last few, since each takes time to make and memory to keep.
#[derive(Clone, Debug, Default)]
pub struct Plans {
    kept: VecDeque<Plan>,
}

impl Plans {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The plan for blocks of K source symbols, made now if it is not kept.
    /// `None` if there is no code for so many, or for none.
    pub fn of(&mut self, source_symbols: u32) -> Option<Plan> {
        let kept = self.kept.iter().position(|plan| plan.source_symbols == source_symbols);
        let plan = match kept.and_then(|at| self.kept.remove(at)) {
            Some(plan) => plan,
            None => Plan::new(source_symbols)?,
        };
        self.kept.truncate(KEPT - 1);
        self.kept.push_front(plan.clone());
        Some(plan)
    }
}
