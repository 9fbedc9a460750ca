//! What is asked for.

use super::{Kept, Web};
use hyper::HeaderMap;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::budget::Budget;
use thalweg_base::rate_limit::Limit;
use thalweg_part::{Batch, Digest, PieceDigests, Publisher};
use thalweg_paths::candidates::Candidate;
use thalweg_paths::url::HttpUrl;
use thalweg_plan::selection::{Config, Prior};
use thalweg_units::Rate;

/// What is to be downloaded, to where, and how.
#[derive(Clone)]
pub struct Request {
    /// The URL.
    pub url: HttpUrl,
    /// What to make.
    pub target: Target,
    /// The paths to try, at least one; the direct one first if it is among them.
    pub paths: Vec<Candidate>,
    /// Further request fields.
    pub fields: HeaderMap,
    /// What the whole file must hash to.
    pub digests: Vec<Digest>,
    /// What its pieces must hash to; compared at the end.
    pub pieces: Option<Arc<PieceDigests>>,
    /// How a path is selected.
    pub selection: Config,
    /// What earlier transfers tell of the paths, in their order; may be shorter.
    pub priors: Vec<Option<Prior>>,
    /// How connections are made.
    pub web: Web,
    /// The most bytes per second, all downloads that share it together.
    pub limit: Option<Arc<Limit>>,
    /// When bytes are made durable.
    pub batch: Batch,
    /// Whether a file that another program left under the final name is gone on with; needs a
    /// digest, see [`thalweg_part::Part::adopt`].
    pub adopt: bool,
    /// How long the object must be, where something else than the server says so, as a Metalink.
    pub expected_length: Option<u64>,
    /// Brings the file under its name.
    pub publisher: Arc<Publisher>,
    /// Connections that earlier downloads of the call left, by path.
    pub kept: Arc<Kept>,
    /// Is charged with the bytes that come, useful or not.
    pub budget: Arc<Budget>,
    /// Which paths cost, and until when all is to be there; `None`: all are used alike.
    pub thrift: Option<Thrift>,
    /// How long a path may take until its first answer. 30 s suits servers
    /// that fetch from tape or another server first.
    pub patience: Duration,
}

/// A time to be met at the least cost (DBAS's deadline mode).
#[derive(Clone, Debug)]
pub struct Thrift {
    /// When all is to be there.
    pub until: Instant,
    /// The paths that cost, by their places.
    pub dear: BTreeMap<u32, Dear>,
}

/// A path that costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dear {
    /// What a byte costs, in any unit.
    pub price: f64,
    /// What it is expected to bring; zero: not known.
    pub expected: Rate,
}

/// What a download makes.
#[derive(Clone)]
pub enum Target {
    /// This file; an existing one is replaced, at the very end.
    File(PathBuf),
    /// A file in this directory, called as the server says (`Content-Disposition`), else by
    /// the final URL's last part. Never outside the directory, never hidden, and never in
    /// place of an existing file.
    In(PathBuf),
    /// A stream of the bytes in their order, e.g. standard output. With an expected digest
    /// nothing is written before the whole object is verified.
    Output(Arc<dyn Output>),
}

/// Where a stream of bytes goes.
pub trait Output: Send + Sync {
    /// Told before the first byte of an attempt which version of the object comes: its strong
    /// entity tag, if it has one.
    ///
    /// # Errors
    /// If that version is not wanted: nothing is written then.
    fn begins(&self, _tag: Option<&str>) -> std::io::Result<()> {
        Ok(())
    }

    /// The path of the target; `None` for standard output and memory.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Takes the next bytes; may block.
    ///
    /// # Errors
    /// If nobody reads any more.
    fn write(&self, data: &[u8]) -> std::io::Result<()>;
}

impl Request {
    /// What is made, for messages before the server was asked.
    pub(super) fn file(&self) -> PathBuf {
        match &self.target {
            Target::File(file) | Target::In(file) => file.clone(),
            Target::Output(_) => "the output".into(),
        }
    }
}
