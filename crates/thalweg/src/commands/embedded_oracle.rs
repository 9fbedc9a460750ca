//! Runs the oracle within the daemon; the crates `node` and `oracle` do not depend on each other.

use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};
use thalweg_base::log::{Event, Log};
use thalweg_mesh::{
    Membership, RosterError, RosterWriter, State,
    service::{ApiService, Caller, Control},
};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_node::config::{OracleMeasureSection, OracleSection, ScheduleName};
use thalweg_oracle::{
    Caller as Asker, Config, Database, Event as Happened, MeasureConfig, Oracle, OracleError,
    OracleMetrics, Pace, ScheduleKind, Server,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, ApiError, RevokeReply, RevokeRequest, StatusReply,
    TokenReply, TokenRequest,
};
use tokio::net::TcpStream;

/// An oracle that runs in this process.
#[derive(Clone, Debug)]
pub struct EmbeddedOracle(Oracle);

impl EmbeddedOracle {
    /// Opens the oracle in this state directory, of the node with this key, with these settings. Its events go to
    /// `log`, if given.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn open(
        state: &State,
        node: NodeId,
        settings: &OracleSection,
        log: Option<Log>,
    ) -> Result<Self, OracleError> {
        let cached = Some(state.roster_file());
        let (validity, database) = (settings.validity, database(settings)?);
        let measure = measure(&settings.measure);
        let mut config = Config { validity, cached, database, measure, ..Config::default() };
        if let Some(log) = log {
            config.events = Arc::new(move |event| log.put(line(event)));
        }
        Ok(Self(Oracle::open(&state.oracle_dir(), node, config).await?))
    }

    /// Puts the settings' rules into force. Only for the daemon, whose settings apply.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn rule(&self, settings: &OracleSection) -> Result<(), OracleError> {
        self.0.set_rules(settings.rules()).await
    }

    /// Registers its metrics, `thalweg_oracle_…`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(OracleMetrics(self.0.clone())));
    }

    /// The newest signed roster.
    pub fn signed(&self) -> Arc<[u8]> {
        self.0.roster().borrow().clone()
    }

    /// Renews the roster until stopped.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.0.run(stop).await;
    }

    /// Passes each published roster to this node itself, as long as the oracle runs.
    pub async fn feed(self, membership: Membership, log: Log) {
        let refused = move |e: RosterError| log.put(Event::new("roster_refused").with("why", e));
        let (mut rosters, keeper) =
            (self.0.roster(), RosterWriter::start(membership, refused.clone()));
        loop {
            let signed = rosters.borrow_and_update().clone();
            // The roster is in force when this returns; another thread waits for the disk.
            if let Err(e) = keeper.take(&signed) {
                refused(e);
            }
            if rosters.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The database that the settings name.
///
/// # Errors
/// A fault of the URL or of the password file; the message contains no secret.
pub fn database(settings: &OracleSection) -> Result<Database, OracleError> {
    let Some(url) = &settings.database else { return Ok(Database::File) };
    let password = settings.database_password_file.as_deref().map(password).transpose()?;
    Ok(Database::Server(Server::new(url.reveal(), password.as_deref())?))
}

/// The first line of a file that others cannot read.
fn password(file: &Path) -> Result<String, OracleError> {
    let wrong = |source| OracleError::File { file: file.into(), source };
    let text = fs::read_to_string(file).map_err(wrong)?;
    let mode = fs::metadata(file).map_err(wrong)?.permissions().mode();
    if mode & 0o007 != 0 {
        let why = "everybody on this host can read this password: chmod o-rwx";
        return Err(wrong(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Converts the measurement settings for the oracle.
fn measure(settings: &OracleMeasureSection) -> MeasureConfig {
    let settings = settings.clone();
    MeasureConfig {
        enabled: settings.enabled,
        schedule: match settings.schedule {
            ScheduleName::Algorithm1 => ScheduleKind::Algorithm1,
            ScheduleName::Thrifty => ScheduleKind::Thrifty,
            ScheduleName::Random => ScheduleKind::Random,
        },
        t: settings.t.into(),
        p: settings.p.fraction(),
        bytes_per_day: settings.bytes_per_day,
        test_bytes: settings.test_bytes,
        test_time: settings.test_time,
        at_once: settings.at_once as usize,
        congestion_control: settings.congestion_control,
        strategy: settings.strategy,
        pace: Pace::default(),
    }
}

/// The log event; what needs an operator is an alert.
fn line(event: &Happened) -> Event {
    let line = match event {
        Happened::Ahead { .. } | Happened::Restored { .. } => {
            Event::new("oracle_behind").with("level", "alert")
        }
        _ => Event::new("oracle"),
    };
    line.with("what", event)
}

impl ApiService for EmbeddedOracle {
    fn serve(&self, channel: Channel<TcpStream>, caller: Caller) -> BoxFuture<'static, ()> {
        let oracle = self.0.clone();
        Box::pin(async move {
            // A broken connection is left to its caller, who asks again.
            let asker = Asker::peer(caller.key, caller.address);
            _ = match caller.protocol {
                Protocol::Join => oracle.serve_join(channel, asker).await,
                _ => oracle.serve(channel, asker).await,
            };
        })
    }
}

/// Whoever can reach the local API owns the oracle, and so is an admin.
impl Control for EmbeddedOracle {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async move {
            self.0.create_token(&Asker::Local, request).await.map_err(|e| refused(&e))
        })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(
            async move { self.0.revoke(&Asker::Local, request).await.map_err(|e| refused(&e)) },
        )
    }

    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        Box::pin(async move {
            let AddressesRequest { addresses } = request;
            self.0.set_addresses(&Asker::Local, addresses).await.map_err(|e| refused(&e))
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        Box::pin(async { Ok(self.0.status()) })
    }
}

fn refused(error: &OracleError) -> ApiError {
    ApiError { code: error.code().to_owned(), message: error.to_string() }
}
