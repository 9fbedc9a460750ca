//! The durable record of a cast at a receiver: its job, and what its source expects.

use serde::{Deserialize, Serialize};
use std::path::Path;
use thalweg_base::job::{Job, JobId, Kind};
use thalweg_wire::{
    cast::{CastId, Offer, PlanExpectation},
    mesh::Name,
};

/// The stored record, besides symbols and digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceptionRecord {
    /// The job, from `SOURCE:NAME` to a path in the inbox.
    pub job: Job,
    /// The source's name when the cast was first offered.
    pub from: Name,
    /// The source's latest expectation.
    pub expected: Option<PlanExpectation>,
}

impl ReceptionRecord {
    /// The record of a cast that was just offered.
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

    /// Encodes the record as one JSON object.
    pub fn encode(&self) -> Vec<u8> {
        // Cannot fail: the record contains only names, numbers and texts.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Decodes a record; `None` if it is not a cast's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(bytes).ok()?;
        (record.job.kind == Kind::Cast).then_some(record)
    }
}
