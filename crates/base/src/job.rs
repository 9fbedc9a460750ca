//! Durable records of transfers, and their events.
//!
//! A [`Job`] is one transfer with its name and origin; it outlives the process.
//! Its durable form is the first line of the journal of the `thalweg_part::Part`
//! it fills, so record and bytes cannot part. A job of several parts (gather,
//! cast) will name the parts; their journals stay the only record of bytes.
//!
//! What happens to a job is told to an [`EventSink`] as [`Event`]s.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr, time::SystemTime};
use thalweg_units::WallTime;
use thiserror::Error;

/// A transfer's name: 16 bytes, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a job id is 32 hexadecimal digits")]
pub struct JobIdError;

/// What is transferred to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One to one.
    Get,
    /// Many to one: the destination pulls.
    Gather,
    /// One to one, pushed by who has it.
    Send,
    /// One to many: receivers hand it on to each other.
    Cast,
}

/// The durable record of one transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name; kept when a later session resumes it.
    pub id: JobId,
    /// What sort of transfer.
    pub kind: Kind,
    /// Where the bytes come from: the URL as the user gave it.
    pub source: String,
    /// Where they go: the target's path, made printable.
    pub target: String,
    /// When it was begun.
    pub created: WallTime,
}

impl Job {
    /// A new record, begun now by this process.
    pub fn begin(kind: Kind, source: String, target: String) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // Unique on this host without a random generator: one process begins
        // no two jobs for the same target in the same nanosecond.
        let seed = format!("{ns} {} {source} {target}", std::process::id());
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(seed.as_bytes()).as_bytes()[..16]);
        Self { id: JobId(id), kind, source, target, created: WallTime::from_unix_nanos(ns) }
    }
}

/// What happens in the course of a job. As JSON: one object per line, `event` names it.
///
/// Rates are in bits per second, sizes in bytes, times in seconds, as the
/// fields' names say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The object is known and its bytes start to come.
    Started {
        /// The job's name.
        job: JobId,
        /// The final URL.
        url: String,
        /// The target's path.
        target: String,
        /// The object's length; absent if the server does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_bytes: Option<u64>,
        /// The names of the paths that are tried, the direct one first.
        paths: Vec<String>,
    },
    /// An earlier session's bytes were taken over.
    Resumed {
        /// How many.
        bytes: u64,
    },
    /// Bytes that another program left under the final name were taken over; a digest will
    /// judge them.
    Adopted {
        /// The file's path.
        file: String,
        /// How many.
        bytes: u64,
    },
    /// What the server sent has changed: all was thrown away and begun anew.
    Restarted {
        /// What changed.
        why: String,
    },
    /// Sampling of a path is over.
    PathSampled {
        /// The path's name.
        path: String,
        /// Its rate, from its first request to its last sampled byte.
        rate_bps: u64,
    },
    /// The rest comes over this path.
    Chosen {
        /// The path's name.
        path: String,
        /// Why this one.
        reason: String,
    },
    /// How far it is; a few times a second.
    Progress {
        /// Bytes written, resumed ones included.
        done_bytes: u64,
        /// The object's length, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_bytes: Option<u64>,
        /// All paths together over the last interval.
        rate_bps: u64,
        /// Each path alone.
        paths: Vec<PathRate>,
    },
    /// Another path than before was chosen; a `chosen` with the reason follows.
    Reselected {
        /// The path that carried the rest until now.
        from: String,
        /// The path that does from now on.
        path: String,
    },
    /// Bytes that another path owes were asked for on this one, too.
    Hedged {
        /// The second path's name.
        path: String,
        /// How many.
        bytes: u64,
    },
    /// The server asked for fewer requests: this path waits.
    Busy {
        /// The path's name.
        path: String,
        /// What the server said.
        why: String,
        /// For how long.
        seconds: f64,
    },
    /// The object's URL had expired; the original one led to a new one.
    Moved {
        /// The path that found out.
        path: String,
        /// The new URL.
        url: String,
    },
    /// What a mirror was found to be good for.
    Mirror {
        /// Its URL.
        mirror: String,
        /// Whether and how its bytes are used.
        says: String,
    },
    /// A path delivered other bytes than the object's; they were replaced.
    Corrupt {
        /// The path's name.
        path: String,
        /// How many bytes differ at least.
        bytes: u64,
    },
    /// What a path brought in all, told at the end; paths that brought nothing are left out.
    PathTotal {
        /// The path's name.
        path: String,
        /// Bytes of the file.
        bytes: u64,
        /// Bytes asked of two paths that this one brought second.
        hedged_bytes: u64,
        /// Bytes that came after the path was stopped, or could not be believed.
        late_bytes: u64,
    },
    /// A path failed. It may be tried again later if it broke or stalled.
    PathFailed {
        /// The path's name.
        path: String,
        /// What happened.
        why: String,
    },
    /// The file is there, under its final name.
    Finished {
        /// Its path.
        target: String,
        /// Its length.
        bytes: u64,
        /// Bytes fetched by this session.
        fetched_bytes: u64,
        /// Fetched bytes beyond what was missing when this session started:
        /// they came twice, too late, or of another version.
        duplicate_bytes: u64,
        /// The time of this session, from start to publication.
        seconds: f64,
        /// Fetched bytes over that time.
        rate_bps: u64,
        /// What the direct path reached in sampling; absent if it was not sampled.
        #[serde(skip_serializing_if = "Option::is_none")]
        direct_estimate_bps: Option<u64>,
        /// `rate_bps / direct_estimate_bps`. No fair gain: the direct path was
        /// sampled in slow start, beside the other paths' flows.
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio_to_sampled_direct: Option<f64>,
        /// All paths' bytes over the wall time of sampling.
        #[serde(skip_serializing_if = "Option::is_none")]
        sampling_rate_bps: Option<u64>,
        /// All bytes after sampling over the wall time until the last one came.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion_rate_bps: Option<u64>,
        /// The path that was chosen last.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion_path: Option<String>,
    },
    /// The job ended without its file.
    Failed {
        /// What happened and what to try.
        why: String,
        /// Bytes that a later session can take over.
        kept_bytes: u64,
    },
}

/// One path's rate over the last interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRate {
    /// The path's name.
    pub path: String,
    /// Bits per second.
    pub rate_bps: u64,
    /// Bytes of the file that it brought in all.
    pub bytes: u64,
}

/// Whoever wants to know what happens: a progress bar, a log, a web page.
///
/// Called from the transfer's own task: it must not block.
pub trait EventSink: Send + Sync {
    /// Takes note of one event.
    fn event(&self, event: &Event);
}

/// A sink that listens to nothing.
impl EventSink for () {
    fn event(&self, _: &Event) {}
}

impl JobId {
    /// The 16 bytes, as messages to other nodes have them.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl From<[u8; 16]> for JobId {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl FromStr for JobId {
    type Err = JobIdError;
    fn from_str(s: &str) -> Result<Self, JobIdError> {
        if s.len() != 32 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(JobIdError);
        }
        let number = u128::from_str_radix(s, 16).map_err(|_| JobIdError)?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_both_ways_and_have_names_of_their_own() {
        let job = Job::begin(Kind::Get, "http://www.example/a".into(), "a".into());
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        assert_ne!(Job::begin(Kind::Get, "b".into(), "a".into()).id, job.id);
    }

    #[test]
    fn events_carry_their_units_in_their_names() {
        let event = Event::PathSampled { path: "direct".into(), rate_bps: 8 };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(json, r#"{"event":"path_sampled","path":"direct","rate_bps":8}"#);
    }
}
