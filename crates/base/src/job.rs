//! Durable records of transfers, and their events.
//!
//! A [`Job`] is one transfer with its id and source; it outlives the process. It is stored in the first line of the
//! journal of each `thalweg_part::Part` that it fills, so the record and the bytes cannot be separated. These journals
//! are the only record of bytes.
//!
//! The events of a job are reported to an [`EventSink`] as [`Event`]s.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr, time::SystemTime};
use thalweg_units::WallTime;
use thiserror::Error;

/// The id of a transfer: 16 bytes, displayed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a job id is 32 hexadecimal digits")]
pub struct JobIdError;

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// From one host to one.
    Get,
    /// From many hosts to one: the destination pulls.
    Gather,
    /// From one host to one: the source pushes.
    Send,
    /// From one host to many: receivers pass it on to each other.
    Cast,
}

/// The durable record of one transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id, which a later session keeps.
    pub id: JobId,
    /// The kind of the transfer.
    pub kind: Kind,
    /// The source: the URL as the user gave it.
    pub source: String,
    /// The target's path, made printable.
    pub target: String,
    /// When the transfer began.
    pub created: WallTime,
}

impl Job {
    /// Creates the record of a transfer that this process begins now.
    pub fn begin(kind: Kind, source: String, target: String) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // This is unique on this host without a random generator, because one process begins no two jobs for the same
        // target in the same nanosecond.
        let seed = format!("{ns} {} {source} {target}", std::process::id());
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(seed.as_bytes()).as_bytes()[..16]);
        Self { id: JobId(id), kind, source, target, created: WallTime::from_unix_nanos(ns) }
    }
}

/// An event of a job. In JSON there is one object per line, named by `event`.
///
/// Rates are in bits per second, sizes in bytes, and times in seconds, as the names of the fields indicate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The object is known and its bytes begin to arrive.
    Started {
        job: JobId,
        /// The final URL.
        url: String,
        target: String,
        /// The object's length; absent if the server does not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_bytes: Option<u64>,
        /// The names of the paths to try, the direct one first.
        paths: Vec<String>,
    },
    /// Bytes of an earlier session were taken over.
    Resumed {
        /// The number of bytes.
        bytes: u64,
    },
    /// Bytes that another program left under the final name were taken over; a digest will verify them.
    Adopted {
        file: String,
        /// The number of bytes.
        bytes: u64,
    },
    /// The object at the server has changed: everything was discarded and the transfer restarted.
    Restarted {
        /// What changed.
        why: String,
    },
    /// Sampling of a path has ended.
    PathSampled {
        path: String,
        /// Its rate, from its first request to its last sampled byte.
        rate_bps: u64,
    },
    /// The rest is fetched over this path.
    Chosen {
        path: String,
        /// The reason for this path.
        reason: String,
    },
    /// The progress, a few times a second.
    Progress {
        /// Bytes written, including resumed ones.
        done_bytes: u64,
        /// The object's length, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_bytes: Option<u64>,
        /// The rate of all paths together over the last interval.
        rate_bps: u64,
        /// The rates of the paths.
        paths: Vec<PathRate>,
    },
    /// Another path than before was chosen; a `chosen` event with the reason follows.
    Reselected {
        /// The path that carried the rest until now.
        from: String,
        /// The path that carries the rest from now on.
        path: String,
    },
    /// Bytes owed by another path were requested on this one too.
    Hedged {
        /// The second path's name.
        path: String,
        /// The number of bytes.
        bytes: u64,
    },
    /// The server asked for fewer requests, so this path waits.
    Busy {
        path: String,
        /// The server's answer.
        why: String,
        /// The time to wait.
        seconds: f64,
    },
    /// The object's URL had expired, and the original URL led to a new one.
    Moved {
        /// The path that noticed it.
        path: String,
        /// The new URL.
        url: String,
    },
    /// The assessment of a mirror.
    Mirror {
        /// The mirror's URL.
        mirror: String,
        /// Whether and how its bytes are used.
        says: String,
    },
    /// A path delivered wrong bytes, which were replaced.
    Corrupt {
        path: String,
        /// The least number of bytes that differ.
        bytes: u64,
    },
    /// The total of one path, reported at the end. Paths that delivered nothing are omitted.
    PathTotal {
        path: String,
        /// Bytes of the file.
        bytes: u64,
        /// Bytes requested on two paths that this one delivered second.
        hedged_bytes: u64,
        /// Bytes that arrived after the path was stopped, or could not be trusted.
        late_bytes: u64,
    },
    /// A note about the file for the user.
    Note { text: String },
    /// A path failed. It may be tried again later if it broke or stalled.
    PathFailed { path: String, why: String },
    /// The file is complete, under its final name.
    Finished {
        target: String,
        /// The file's length.
        bytes: u64,
        /// Bytes fetched by this session.
        fetched_bytes: u64,
        /// Fetched bytes beyond those missing when this session started: they arrived twice, too late, or belong to
        /// another version.
        duplicate_bytes: u64,
        /// The time of this session, from start to publication.
        seconds: f64,
        /// Fetched bytes divided by that time.
        rate_bps: u64,
        /// The rate of the direct path in sampling; absent if it was not sampled.
        #[serde(skip_serializing_if = "Option::is_none")]
        direct_estimate_bps: Option<u64>,
        /// `rate_bps / direct_estimate_bps`. It is not a fair gain: the direct path was sampled in slow start, together
        /// with other paths' flows.
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio_to_sampled_direct: Option<f64>,
        /// The bytes of all paths divided by the wall time of sampling.
        #[serde(skip_serializing_if = "Option::is_none")]
        sampling_rate_bps: Option<u64>,
        /// All bytes after sampling divided by the wall time until the last one arrived.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion_rate_bps: Option<u64>,
        /// The path that was chosen last.
        #[serde(skip_serializing_if = "Option::is_none")]
        completion_path: Option<String>,
    },
    /// The job ended without its file.
    Failed {
        /// What happened, and what to try.
        why: String,
        /// Bytes that a later session can take over.
        kept_bytes: u64,
    },
}

/// One path's rate over the last interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRate {
    pub path: String,
    pub rate_bps: u64,
    /// The bytes of the file that it has delivered so far.
    pub bytes: u64,
}

/// A receiver of events: a progress bar, a log, a web page.
///
/// It is called from the transfer's own task and must not block.
pub trait EventSink: Send + Sync {
    fn event(&self, event: &Event);
}

/// A sink that ignores all events.
impl EventSink for () {
    fn event(&self, _: &Event) {}
}

impl JobId {
    /// The 16 bytes, as used in messages to other nodes.
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
    fn records_are_serialized_and_have_distinct_ids() {
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
