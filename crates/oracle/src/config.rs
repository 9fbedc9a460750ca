//! What an operator or a test sets.

use crate::{Database, Event, MeasureConfig};
use std::{
    fmt,
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use thalweg_units::WallTime;

/// Where the date comes from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl Clock {
    /// The system's.
    pub fn system() -> Self {
        Self::from_fn(|| {
            let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }

    /// Another one, for tests.
    pub fn from_fn(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> WallTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// How often strangers may ask to join. A token cannot be guessed (128 random bits);
/// this bounds the work that they can cause.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// Requests from one address (IPv6: one /64) at once; a rack behind one NAT joins in one go.
    pub burst: NonZeroU32,
    /// One more after each of these.
    pub every: Duration,
    /// Requests from all addresses at once.
    pub burst_of_all: NonZeroU32,
    /// One more after each of these.
    pub every_of_all: Duration,
}

const fn number(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

impl Default for JoinLimits {
    /// 30 at once and 20 a minute from one address; 300 at once and 10 a second from all.
    fn default() -> Self {
        Self {
            burst: number(30),
            every: Duration::from_secs(3),
            burst_of_all: number(300),
            every_of_all: Duration::from_millis(100),
        }
    }
}

/// Told of what an operator should know; called in place, so it must not block.
pub type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// How an oracle works.
#[derive(Clone)]
pub struct Config {
    /// How long a roster holds; renewed when a third of it has passed.
    pub validity: Duration,
    /// Where members, tokens, rosters and measurements are kept.
    pub database: Database,
    /// How long an oracle is elected to schedule unless it renews that, which it does each third
    /// of it; none: 6 s with a server, half an hour with a file.
    pub lease: Option<Duration>,
    /// How often to look whether another process has changed the database, and whether
    /// the roster needs renewal.
    pub refresh: Duration,
    /// How long a write waits for others and for the database's lock, each.
    pub patience: Duration,
    /// How often strangers may ask to join.
    pub join_limits: JoinLimits,
    /// The roster that this oracle's node has cached. It may be newer than all that the
    /// oracle's directory has, if that was restored from a backup.
    pub cached: Option<PathBuf>,
    /// How the mesh is measured.
    pub measure: MeasureConfig,
    /// Where the date comes from.
    pub clock: Clock,
    /// Where events go.
    pub events: Sink,
}

impl Default for Config {
    /// 7 days; a file; every second; 2 s; [`JoinLimits::default`]; [`MeasureConfig::default`]; the system's clock; events are dropped.
    fn default() -> Self {
        Self {
            validity: Duration::from_secs(7 * 24 * 3600),
            database: Database::File,
            lease: None,
            refresh: Duration::from_secs(1),
            patience: Duration::from_secs(2),
            join_limits: JoinLimits::default(),
            cached: None,
            measure: MeasureConfig::default(),
            clock: Clock::system(),
            events: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("validity", &self.validity).finish_non_exhaustive()
    }
}
