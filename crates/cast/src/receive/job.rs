//! The durable record of a cast at a receiver: which job it is, and what its source expects of it.

use serde::{Deserialize, Serialize};
use std::path::Path;
use thalweg_base::job::{Job, JobId, Kind};
use thalweg_wire::{
    cast::{CastId, Expected, Offer},
    mesh::Name,
};

/// What outlives the process besides the symbols and what proves them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Named as the cast is: from `SOURCE:NAME` to a path in the inbox.
    pub job: Job,
    /// Who casts, by its name when it was first offered.
    pub from: Name,
    /// The last word of the source on what it expects.
    pub expected: Option<Expected>,
}

impl Record {
    /// Of a cast that was just offered.
    pub fn begin(id: CastId, from: &Name, offer: &Offer, inbox: &Path) -> Self {
        let target = inbox.join(offer.name.to_string());
        let job = Job {
            id: JobId::from(*id.as_bytes()),
            kind: Kind::Cast,
            source: format!("{from}:{}", offer.name),
            target: target.display().to_string(),
            created: offer.created,
        };
        Self { job, from: from.clone(), expected: None }
    }

    /// As it is kept: one JSON object.
    pub fn encode(&self) -> Vec<u8> {
        // Names, numbers and texts: there is nothing that JSON cannot say.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// As it was kept, if it is a cast's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        (record.job.kind == Kind::Cast).then_some(record)
    }
}
