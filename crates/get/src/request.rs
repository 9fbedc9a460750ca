//! The request for a download.

use super::{HttpSettings, IdleConnections};
use hyper::HeaderMap;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::budget::Budget;
use thalweg_base::rate_limit::RateLimit;
use thalweg_part::{Batch, Digest, PieceDigests, Publisher};
use thalweg_paths::candidates::Candidate;
use thalweg_paths::url::HttpUrl;
use thalweg_plan::selection::{Config, Prior};
use thalweg_units::Rate;

/// What to download, where to, and how.
#[derive(Clone)]
pub struct Request {
    pub url: HttpUrl,
    /// Where the object goes.
    pub target: Target,
    /// The paths to try, at least one. If the direct one is among them, it comes first.
    pub paths: Vec<Candidate>,
    /// Additional request fields.
    pub fields: HeaderMap,
    /// The expected digests of the whole file.
    pub digests: Vec<Digest>,
    /// The expected digests of its pieces, compared at the end.
    pub pieces: Option<Arc<PieceDigests>>,
    /// The parameters of the path selection.
    pub selection: Config,
    /// Expectations of the paths from earlier transfers, in the order of `paths`; may be shorter.
    pub priors: Vec<Option<Prior>>,
    /// How connections are made.
    pub web: HttpSettings,
    /// The rate limit, shared by all downloads that have the same one.
    pub limit: Option<Arc<RateLimit>>,
    /// When bytes are made durable.
    pub batch: Batch,
    /// Whether to continue a file that another program left under the final name. Needs a digest; see
    /// [`thalweg_part::Part::adopt`].
    pub adopt: bool,
    /// The expected length of the object, if a source other than the server states it, such as a Metalink.
    pub expected_length: Option<u64>,
    /// Publishes the file under its name.
    pub publisher: Arc<Publisher>,
    /// Idle connections of earlier downloads of the call, by path.
    pub kept: Arc<IdleConnections>,
    /// The budget that received bytes are charged to, useful or not.
    pub budget: Arc<Budget>,
    /// The paths that cost money, and the deadline; `None`: all paths are used alike.
    pub thrift: Option<CostDeadline>,
    /// How long a path may take until its first answer. 30 s suits servers that first fetch from tape or another
    /// server.
    pub patience: Duration,
}

/// A deadline to meet at the least cost (DBAS's deadline mode).
#[derive(Clone, Debug)]
pub struct CostDeadline {
    pub until: Instant,
    /// The paths that cost money, by their index in [`Request::paths`].
    pub dear: BTreeMap<u32, PricedPath>,
}

/// A path that costs money.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PricedPath {
    /// The price of a byte, in any unit.
    pub price: f64,
    /// Its expected rate; zero: not known.
    pub expected: Rate,
}

/// The target of a download.
#[derive(Clone)]
pub enum Target {
    /// This file. An existing one is replaced at the very end.
    File(PathBuf),
    /// A file in this directory, with the name that the server gives (`Content-Disposition`), or else the last part of
    /// the final URL. Never outside the directory, never hidden, and never in place of an existing file.
    In(PathBuf),
    /// A stream of the bytes in order, such as standard output. With an expected digest, nothing is written before the
    /// whole object is verified.
    Output(Arc<dyn Output>),
}

/// The destination of a stream of bytes.
pub trait Output: Send + Sync {
    /// Called before the first byte of an attempt with the version of the object: its strong entity tag, if it has one.
    ///
    /// # Errors
    /// If that version is not wanted. Nothing is then written.
    fn begins(&self, _tag: Option<&str>) -> std::io::Result<()> {
        Ok(())
    }

    /// The path of the target; `None` for standard output and memory.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Writes the next bytes. May block.
    ///
    /// # Errors
    /// If the reader is gone.
    fn write(&self, data: &[u8]) -> std::io::Result<()>;
}

impl Request {
    /// The target as shown in messages before the server was asked.
    pub(super) fn file(&self) -> PathBuf {
        match &self.target {
            Target::File(file) | Target::In(file) => file.clone(),
            Target::Output(_) => "the output".into(),
        }
    }
}
