//! Sorts packets into traffic classes.

use crate::topology::{ClassPlan, Resolved};

/// The index of a traffic class: 0 is `other`, then the topology's classes, then `cross`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub u16);

impl ClassId {
    /// Packets that match no class.
    pub const OTHER: Self = Self(0);
}

/// Sorts packets into the classes of a topology.
#[derive(Clone, Debug)]
pub struct Classifier {
    classes: Vec<ClassPlan>,
}

impl Classifier {
    /// Creates the classifier of a topology.
    pub fn new(resolved: &Resolved) -> Self {
        Self { classes: resolved.classes.clone() }
    }

    /// The first class that matches. Ports are 0 if the protocol has none.
    pub fn classify(&self, protocol: u8, source: u16, destination: u16) -> ClassId {
        let found = self.classes.iter().position(|c| c.matches(protocol, source, destination));
        found.map_or(ClassId::OTHER, |i| ClassId(i as u16 + 1))
    }

    /// The names of all classes in the order of [`ClassId`].
    pub fn names(&self) -> Vec<String> {
        let own = self.classes.iter().map(|c| c.name.as_str());
        [crate::topology::OTHER]
            .into_iter()
            .chain(own)
            .chain([crate::topology::CROSS])
            .map(str::to_owned)
            .collect()
    }
}
