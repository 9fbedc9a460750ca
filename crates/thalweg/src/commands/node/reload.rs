//! Applies changed settings while the node runs.
//!
//! ```text
//! SIGHUP, POST /v1/reload ─► read ─► check all ─► prepare each service ─► rules at the oracle ─► apply, which cannot fail
//!                                     └─────────── an error: all former settings stay ──┘
//! ```

use super::{local_oracle::LocalOracle, parts::with_drop_box_offers, settings};
use anyhow::bail;
use futures_util::future::BoxFuture;
use std::{net::SocketAddr, path::PathBuf};
use thalweg_base::log::{Event, Log};
use thalweg_cast::CastService;
use thalweg_dropbox::DropBoxes;
use thalweg_files::Files;
use thalweg_jobs::Jobs;
use thalweg_node::{
    config::{Applies, Change, Config, config_file},
    daemon::{DaemonConfig, Reload, ReloadReply},
};
use thalweg_probe::prober::Prober;
use thalweg_relay::{MeshRelay, RelayConfig};
use thalweg_stream::Streams;
use thalweg_wire::mesh::ApiError;
use tokio::sync::Mutex;

/// The services of a node whose settings can change while it runs.
#[derive(Debug)]
pub struct LiveServices {
    pub relay: Option<MeshRelay>,
    pub prober: Option<Prober>,
    pub files: Files,
    pub casts: CastService,
    pub boxes: Option<DropBoxes>,
    pub streams: Streams,
    pub oracle: LocalOracle,
}

/// Reads the settings file of a running node again.
#[derive(Debug)]
pub struct SettingsReload {
    services: LiveServices,
    jobs: Option<Jobs>,
    /// The given file, or the user's own; `None`: there is no default path.
    file: Option<PathBuf>,
    /// The addresses with which the node was started; empty: it has no port.
    listen: Vec<SocketAddr>,
    versions: Mutex<Versions>,
    log: Log,
}

#[derive(Debug)]
struct Versions {
    /// The settings with which the node was started.
    started: Config,
    /// Those that it uses.
    applied: Config,
    /// Whether they came from a file.
    had_file: bool,
}

impl SettingsReload {
    /// Begins with the settings of this node's start, from `given` or from the user's own file.
    pub fn new(
        services: LiveServices,
        jobs: Option<Jobs>,
        given: Option<PathBuf>,
        (config, daemon): (&Config, &DaemonConfig),
        log: Log,
    ) -> Self {
        let file = config_file(given.as_deref());
        let had_file = file.as_ref().is_some_and(|file| file.exists());
        let versions = Versions { started: config.clone(), applied: config.clone(), had_file };
        let listen = daemon.listen.clone();
        Self { services, jobs, file, listen, versions: Mutex::new(versions), log }
    }

    /// Reads and applies the settings, and logs the result.
    pub async fn reload_and_log(&self) -> Result<ReloadReply, ApiError> {
        let mut versions = self.versions.lock().await;
        let done = self.apply(&mut versions).await;
        let event = Event::new("settings_reloaded");
        match &done {
            Ok(reply) => {
                let listed = |wanted: Applies| {
                    let of = reply.changes.iter().filter(|change| change.applies == wanted);
                    of.map(|change| change.key.as_str()).collect::<Vec<_>>().join(",")
                };
                let event = event.with("applied", listed(Applies::Reload));
                self.log.put(event.with("restart", listed(Applies::Restart)));
            }
            Err(why) => {
                let event = Event::new("settings_not_reloaded").with("level", "alert");
                self.log.put(event.with("why", format!("{why:#}")));
            }
        }
        done.map_err(|why| ApiError { code: "settings".to_owned(), message: format!("{why:#}") })
    }

    async fn apply(&self, versions: &mut Versions) -> anyhow::Result<ReloadReply> {
        let config = self.read(versions.had_file)?;
        let mut changes = config.changes(&versions.started, &versions.applied);
        self.add_missing_port(&config, &mut changes);
        let apply = self.prepare(&config)?;
        if let LocalOracle::Running(oracle) = &self.services.oracle {
            oracle.rule(&config.oracle).await?;
        }
        apply();
        versions.had_file = self.file.as_ref().is_some_and(|file| file.exists());
        versions.applied = config;
        Ok(ReloadReply { file: self.file.clone(), changes })
    }

    /// Reads and checks the file. If there was one, it must be there: a file that is moved away by mistake must not undo
    /// all settings.
    fn read(&self, had_file: bool) -> anyhow::Result<Config> {
        let Some(file) = &self.file else { return Ok(Config::default()) };
        let config = match had_file {
            true => Config::load(file)?,
            false => Config::load_or_default(file)?,
        };
        let problems = config.check_here();
        if !problems.is_empty() {
            let line = |problem| format!("{}: {problem}", file.display());
            bail!("{}", problems.iter().map(line).collect::<Vec<_>>().join("\n"));
        }
        Ok(config)
    }

    /// A node that nobody had a reason to connect to has no port, and opens it when it starts.
    fn add_missing_port(&self, config: &Config, changes: &mut Vec<Change>) {
        let is_listed = changes.iter().any(|change| change.key == "listen");
        if self.listen.is_empty() && settings::serves_members(config) && !is_listed {
            let change = Change { key: "listen".to_owned(), applies: Applies::Restart };
            changes.insert(0, change);
        }
    }

    /// Prepares all that can fail, and changes nothing. Returns what then applies the settings.
    fn prepare(&self, config: &Config) -> anyhow::Result<impl FnOnce() + use<>> {
        let LiveServices { relay, prober, files, casts, boxes, streams, .. } = &self.services;
        let relay_config = self.relay_config(config);
        let relay = relay.as_ref().map(|relay| relay.prepare(relay_config)).transpose()?;
        let files = files.prepare(&with_drop_box_offers(config, boxes.as_ref()).files())?;
        let casts = casts.prepare(&(&config.cast).into())?;
        let (prober, streams, jobs) = (prober.clone(), streams.clone(), self.jobs.clone());
        let (log, config) = (self.log.clone(), config.clone());
        Ok(move || {
            relay.into_iter().for_each(|apply| apply());
            files();
            casts();
            let measure = &config.measure;
            prober.iter().for_each(|p| p.set_limits(measure.max_bytes_per_day, measure.max_rate));
            streams.set_settings((&config.stream).into());
            let limits = &config.jobs;
            jobs.iter()
                .for_each(|j| j.set_limits(limits.parallel, limits.max_open, limits.max_ended));
            log.set_format(config.log.format.into());
        })
    }

    fn relay_config(&self, config: &Config) -> RelayConfig {
        settings::relay(config, &self.listen)
    }
}

impl Reload for SettingsReload {
    fn reload(&self) -> BoxFuture<'_, Result<ReloadReply, ApiError>> {
        Box::pin(self.reload_and_log())
    }
}
