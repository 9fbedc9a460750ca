//! Settings of the oracle.

use crate::{Database, Event, MeasureConfig};
use std::{
    fmt,
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use thalweg_units::WallTime;

/// The source of the date.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::from_fn(|| {
            let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }

    /// Another clock, for tests.
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

/// How often strangers may request to join. A token cannot be guessed (128 random bits); the limits bound the work that
/// strangers can cause.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// The burst of requests from one address (IPv6: one /64). A rack behind one NAT joins at once.
    pub burst: NonZeroU32,
    /// The time after which one address may send one more request.
    pub every: Duration,
    /// The burst of requests from all addresses.
    pub burst_of_all: NonZeroU32,
    /// The time after which all addresses together may send one more request.
    pub every_of_all: Duration,
}

const fn number(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

impl Default for JoinLimits {
    /// A burst of 30 and 20 per minute from one address; a burst of 300 and 10 per second from all.
    fn default() -> Self {
        Self {
            burst: number(30),
            every: Duration::from_secs(3),
            burst_of_all: number(300),
            every_of_all: Duration::from_millis(100),
        }
    }
}

/// Receives events. It is called synchronously, so it must not block.
pub type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// The settings of an oracle.
#[derive(Clone)]
pub struct Config {
    /// How long a roster is valid. It is renewed when a third of this has passed.
    pub validity: Duration,
    /// The database for members, tokens, rosters and measurements.
    pub database: Database,
    /// How long an election to schedule lasts; it is renewed each third of this. `None`: 6 s with a server, half an
    /// hour with a file.
    pub lease: Option<Duration>,
    /// How often to check whether another process has changed the database, and whether the roster is due for renewal.
    pub refresh: Duration,
    /// How long a write waits for other writes, and again for the database's lock.
    pub patience: Duration,
    /// How often strangers may request to join.
    pub join_limits: JoinLimits,
    /// The roster that this oracle's node has cached. It may be newer than the oracle's directory, if that was restored
    /// from a backup.
    pub cached: Option<PathBuf>,
    /// How the mesh is measured.
    pub measure: MeasureConfig,
    /// The source of the date.
    pub clock: Clock,
    /// The receiver of events.
    pub events: Sink,
}

impl Default for Config {
    /// 7 days; a file; the default lease; every second; 2 s; [`JoinLimits::default`]; [`MeasureConfig::default`]; the
    /// system's clock; events are dropped.
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
