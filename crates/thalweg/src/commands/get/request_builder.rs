//! Makes the requests of downloads from the arguments, the settings and the mesh.

use super::{
    allowed::{self, Ways},
    args::{Args, Output, WebArgs},
    bonds,
    credentials::credentials,
    exit::Code,
    mesh::Mesh,
    relays::Choice,
    sources::Wanted,
    streams::{Special, Stdout},
};
use crate::commands::{
    history_file::{self, now},
    host::quoted,
    uplinks,
};
use anyhow::bail;
use hyper::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{budget::Budget, rate_limit::RateLimit, rate_timetable::RateTimetable};
use thalweg_get::{CostDeadline, HttpSettings, IdleConnections, Request, Target, add_field};
use thalweg_net::{DialOptions, Dialer, Interface, Route, SocketOptions, TlsClient, TlsOptions};
use thalweg_part::{Batch, Publisher};
use thalweg_paths::{
    candidates::{Candidate, MAX_CANDIDATES, candidates, own_interface},
    detours::Detours,
    history::History,
    url::HttpUrl,
};
use thalweg_units::Rate;
use thalweg_uplinks::interfaces::{Accounts, Uplinks};
use thalweg_wire::mesh::Terms;

/// The timeout of a path for its first answer: a server may first have to fetch the file from elsewhere.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What all downloads share.
pub struct RequestBuilder<'a> {
    args: &'a Args,
    mesh: Mesh,
    ways: Mutex<Ways>,
    /// The deadline for all downloads.
    until: Option<Instant>,
    web: HttpSettings,
    history: Option<&'a Mutex<History>>,
    detours: Option<&'a Mutex<Detours>>,
    /// How the last request's relays were chosen.
    choice: Mutex<Option<Choice>>,
    limit: Option<Arc<RateLimit>>,
    publisher: Arc<Publisher>,
    kept: Arc<IdleConnections>,
    budget: Arc<Budget>,
    /// The target files that downloads of this command have claimed.
    claimed: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> RequestBuilder<'a> {
    /// Reads everything that the arguments refer to. `note` receives remarks for the user.
    ///
    /// # Errors
    /// A mistake in the arguments, before anything is fetched.
    pub fn new(
        args: &'a Args,
        history: Option<&'a Mutex<History>>,
        detours: Option<&'a Mutex<Detours>>,
        note: &dyn Fn(String),
    ) -> anyhow::Result<Self> {
        let mesh = Mesh::open(args.paths.state_dir.open(), args.paths.state_dir.argument());
        if let (true, Some(fault)) = (args.paths.tries_mesh(), mesh.fault()) {
            note(format!("no relays are tried: {fault}"));
        }
        mesh.check_tags(&args.paths.avoid)?;
        let within = args.effort.within;
        let chosen = allowed::chosen(&args.paths, note)?;
        let ways = allowed::of(&args.paths, within, chosen, &BTreeSet::new(), note)?;
        let maker = Self {
            until: within.map(|within| Instant::now() + within),
            web: web(args, &mesh, ways.uplinks.clone(), note)?,
            ways: Mutex::new(ways),
            mesh,
            args,
            history,
            detours,
            choice: Mutex::default(),
            limit: args.effort.limit_rate.clone().map(|rate| Arc::new(RateLimit::scheduled(rate))),
            publisher: Arc::default(),
            kept: Arc::default(),
            budget: uplinks::budget(),
            claimed: Mutex::default(),
        };
        // Mistakes in routes and headers are reported now, instead of at each download.
        maker.routes(&maker.args.paths.terms(false), None, note)?;
        fields(&args.web, true)?;
        Ok(maker)
    }

    /// The interfaces as of the last look.
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock()
    }

    /// Looks at the interfaces again, because others may have come up. If none of the previous interfaces reached
    /// anything (`is_cut_off`), backups take over.
    pub fn look_again(&self, is_cut_off: bool) {
        let (paths, within) = (&self.args.paths, self.args.effort.within);
        let mut fails: BTreeSet<u32> = BTreeSet::new();
        if is_cut_off {
            fails.extend(self.ways().interfaces.iter().map(|interface| interface.index.get()));
        }
        let chosen = allowed::chosen(paths, &|_| ());
        let again = chosen.and_then(|chosen| allowed::of(paths, within, chosen, &fails, &|_| ()));
        // On failure the previous interfaces stay in use: they may still work.
        if let Ok(ways) = again {
            *self.ways() = ways;
        }
    }

    /// Makes the request for `wanted`.
    ///
    /// # Errors
    /// Why there is none, with the exit code.
    pub fn request(&self, wanted: &Wanted) -> Result<Request, (String, Code)> {
        let target = self.target(wanted)?;
        let usage = |e: anyhow::Error| (e.to_string(), Code::Usage);
        let paths = self.paths(wanted).map_err(usage)?;
        let origin = wanted.url.origin();
        Ok(Request {
            thrift: self.thrift(&origin, &paths),
            priors: paths.iter().map(|path| self.prior(&origin, &path.name)).collect(),
            paths,
            fields: fields(&self.args.web, wanted.is_trusted()).map_err(usage)?,
            adopt: self.adopts(wanted, &target)?,
            ..self.bare(wanted, target)
        })
    }

    /// The paths that cost money.
    fn thrift(&self, origin: &str, paths: &[Candidate]) -> Option<CostDeadline> {
        let dear = |(place, path): (u32, &Candidate)| {
            let mut dear = *self.ways().dear.get(&path.route.interface()?)?;
            if let Some(rate) = self.rate(origin, &path.name) {
                dear.expected = rate;
            }
            Some((place, dear))
        };
        Some(CostDeadline { until: self.until?, dear: (0..).zip(paths).filter_map(dear).collect() })
    }

    /// A request by the direct path only, for a document that this command reads itself: a Metalink.
    pub fn document(&self, wanted: &Wanted, target: Target) -> Request {
        let fields = fields(&self.args.web, true).unwrap_or_default();
        Request { fields, ..self.bare(wanted, target) }
    }

    fn bare(&self, wanted: &Wanted, target: Target) -> Request {
        Request {
            url: wanted.url.clone(),
            target,
            paths: vec![candidate("direct".to_owned(), Route::direct(), None)],
            fields: Default::default(),
            digests: wanted.digests.clone(),
            pieces: wanted.pieces.clone(),
            selection: self.args.paths.selection(self.ways().interfaces.len()),
            priors: Vec::new(),
            web: self.web_for(wanted),
            limit: self.limit.clone(),
            batch: Batch::default(),
            adopt: false,
            // A hash says more than a length.
            expected_length: wanted.size.filter(|_| wanted.digests.is_empty()),
            publisher: Arc::clone(&self.publisher),
            kept: Arc::clone(&self.kept),
            budget: Arc::clone(&self.budget),
            thrift: None,
            patience: FIRST_ANSWER_TIMEOUT,
        }
    }

    /// The settings for a server. A server that the user did not choose gets only logins that are stored for its host,
    /// and only over TLS.
    fn web_for(&self, wanted: &Wanted) -> HttpSettings {
        let mut web = self.web.clone();
        if !wanted.is_trusted() {
            web.credentials = Arc::new(web.credentials.for_strangers());
        }
        web
    }

    /// Whether requests for `wanted` carry a login.
    pub fn logs_in(&self, wanted: &Wanted) -> bool {
        fields(&self.args.web, wanted.is_trusted())
            .is_ok_and(|fields| self.web_for(wanted).logs_in(&wanted.url, &fields))
    }

    /// The origin of `wanted`, if it gets no login but would if the user had named it.
    pub fn withholds_login(&self, wanted: &Wanted) -> Option<String> {
        let as_named = Wanted { named_by: None, ..wanted.clone() };
        let withheld = self.logs_in(&as_named) && !self.logs_in(wanted);
        withheld.then(|| wanted.url.origin())
    }

    /// Releases the file of a request that is retried.
    pub fn release(&self, file: &Path) {
        self.claimed.lock().remove(file);
    }

    /// Whether an existing file is to be continued.
    fn adopts(&self, wanted: &Wanted, target: &Target) -> Result<bool, (String, Code)> {
        let Target::File(file) = target else { return Ok(false) };
        if !self.args.naming.adopts() || !file.exists() {
            return Ok(false);
        }
        match wanted.digests.is_empty() {
            false => Ok(true),
            true => Err((
                format!(
                    "{0} exists, and its expected content is unknown: -C - continues another \
                     program's download only with --sha256 or --blake3. Without -C, an \
                     interrupted download of thalweg's own is continued, and {0} is replaced",
                    file.display()
                ),
                Code::Usage,
            )),
        }
    }

    fn target(&self, wanted: &Wanted) -> Result<Target, (String, Code)> {
        let file = match &wanted.output {
            Output::Stdout => return Ok(Target::Output(Arc::new(Stdout))),
            Output::Named(directory) if directory.as_os_str().is_empty() => {
                return Ok(Target::In(PathBuf::from(".")));
            }
            Output::Named(directory) => return Ok(Target::In(directory.clone())),
            Output::File(file) => match Special::at(file) {
                Some(special) => return Ok(Target::Output(Arc::new(special))),
                None => file.clone(),
            },
            Output::Below(directory, name) => {
                refuse_links(directory, name)?;
                directory.join(name)
            }
            Output::Url(directory) => {
                let name = wanted.url.file_name();
                let name = name.map_err(|e| (format!("{e}; give one with -o"), Code::Usage))?;
                directory.join(name)
            }
        };
        self.claim(&file)?;
        if let Some(parent) = file.parent().filter(|p| p.starts_with(self.directory())) {
            let made = std::fs::create_dir_all(parent);
            made.map_err(|e| (format!("cannot create {}: {e}", parent.display()), Code::Disk))?;
        }
        Ok(Target::File(file))
    }

    /// The directory that the user named; names below it may contain directories.
    fn directory(&self) -> &Path {
        self.args.naming.directory()
    }

    fn claim(&self, file: &Path) -> Result<(), (String, Code)> {
        let mut claimed = self.claimed.lock();
        match claimed.insert(file.to_owned()) {
            true => Ok(()),
            false => Err((
                format!(
                    "{} is the target of another download of this command; name this one with \
                     -o, or in a list after its URL and a tab",
                    file.display()
                ),
                Code::Usage,
            )),
        }
    }

    /// The rate of a path to this server, if known.
    pub fn rate(&self, origin: &str, path: &str) -> Option<Rate> {
        self.prior(origin, path).map(|prior| prior.rate)
    }

    /// The lowest rate that the mesh's rules give this host at a relay of the path with this name.
    pub fn rate_quota(&self, path: &str) -> Option<Rate> {
        self.mesh.rate_quota(path)
    }

    fn prior(&self, origin: &str, path: &str) -> Option<thalweg_plan::selection::Prior> {
        let history = self.history?.lock();
        history.prior(origin, path, now())
    }

    /// All paths to the URL and its mirrors.
    fn paths(&self, wanted: &Wanted) -> anyhow::Result<Vec<Candidate>> {
        let https = std::iter::once(&wanted.url).chain(&wanted.mirrors).all(HttpUrl::is_https);
        let terms = self.args.paths.terms(https);
        if let Some(path) = &self.args.paths.path {
            return Ok(vec![candidate(path.clone(), self.mesh.route(path, &terms)?, None)]);
        }
        let origin = wanted.url.origin();
        let mut relays = self.routes(&terms, Some(&origin), &|_| ())?;
        let rate = |name: &str| self.rate(&origin, name);
        let mirrors = wanted.mirrors.len().min(MAX_CANDIDATES / 2);
        let most = MAX_CANDIDATES.max(1 + self.args.paths.via.len());
        let ways = self.ways();
        let ruled = ways.ruled(&wanted.url)?;
        let interfaces = ruled.as_deref().unwrap_or(&ways.interfaces);
        if ruled.is_some() {
            // A bond also has links by other interfaces, and a carried route goes where the node sends its datagrams.
            relays.retain(|(_, route)| !route.is_carried());
        }
        let own = match ways.is_bound || ruled.is_some() {
            true => bound(interfaces, &relays, most - mirrors),
            false => candidates(
                interfaces,
                // Without interfaces to compare it with, the kernel need not be asked.
                (!interfaces.is_empty()).then(|| own_interface(&wanted.url)).flatten(),
                &relays,
                most - mirrors,
                rate,
            ),
        };
        let bond = bonds::path(&self.args.paths, &relays, interfaces);
        let bond = bond.filter(|_| ruled.is_none() && own.len() < most);
        let own = own.into_iter().chain(bond).collect();
        Ok(with_mirrors(own, &wanted.mirrors, most))
    }

    /// The relays by name. Those that the user did not name are left out if they recently altered bytes from `origin`,
    /// or, without an origin, from several sites.
    fn routes(
        &self,
        terms: &Terms,
        origin: Option<&str>,
        note: &dyn Fn(String),
    ) -> anyhow::Result<Vec<(String, Route)>> {
        let paths = &self.args.paths;
        let mut routes: Vec<(String, Route)> = Vec::new();
        for name in &paths.via {
            let route = self.mesh.route(name, terms)?;
            if route.is_direct() || routes.iter().any(|(_, r)| *r == route) {
                bail!("--via: path {name} is given twice");
            }
            routes.push((name.clone(), route));
        }
        if paths.tries_mesh() {
            let mut found = self.mesh.relays(terms);
            found.retain(|(name, _)| !self.is_quarantined(name, origin, note));
            routes.extend(self.picked(found, origin));
        }
        if let Some(path) = &paths.path {
            self.mesh.route(path, terms)?;
        }
        Ok(routes)
    }

    /// The relays of the mesh that this download tries; all of them without an origin.
    fn picked(&self, relays: Vec<(String, Route)>, origin: Option<&str>) -> Vec<(String, Route)> {
        let Some(origin) = origin.filter(|_| !relays.is_empty()) else { return relays };
        let rate = |path: &str| self.rate(origin, path);
        let draw = self.args.paths.draw.into();
        let choice = Choice::make(self.detours, &relays, rate, draw, now());
        let routes = choice.routes(relays);
        *self.choice.lock() = Some(choice);
        routes
    }

    /// How the relays of the last request were chosen; returned once.
    pub fn choice(&self) -> Option<Choice> {
        self.choice.lock().take()
    }

    fn is_quarantined(&self, relay: &str, origin: Option<&str>, note: &dyn Fn(String)) -> bool {
        let Some(history) = self.history else { return false };
        let history = history.lock();
        let quarantined = history.is_quarantined(relay, origin, now());
        if quarantined {
            let paths = &self.args.paths;
            note(format!(
                "relay {relay} recently altered bytes and is not used; --via {relay} uses it, and \
                 `thalweg history lift {}{}` allows it again",
                quoted(relay),
                history_file::argument(paths.history.as_deref(), &paths.state_dir)
            ));
        }
        quarantined
    }
}

/// Refuses a name from a list or a Metalink that passes through a symbolic link, because the link could lead out of
/// `directory`.
fn refuse_links(directory: &Path, name: &Path) -> Result<(), (String, Code)> {
    for part in name.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        let part = directory.join(part);
        if part.is_symlink() {
            let (name, part) = (name.display(), part.display());
            return Err((
                format!(
                    "{name}: {part} is a symbolic link, and names in lists and Metalinks may \
                         not pass through one"
                ),
                Code::Usage,
            ));
        }
    }
    Ok(())
}

fn candidate(name: String, route: Route, mirror: Option<HttpUrl>) -> Candidate {
    Candidate { name, route, mirror }
}

/// Every path by each of these interfaces, bound to it, so that nothing leaves by another interface.
fn bound(interfaces: &[Interface], relays: &[(String, Route)], max: usize) -> Vec<Candidate> {
    let direct = ("direct".to_owned(), Route::direct());
    let ways = std::iter::once(&direct).chain(relays);
    let (carried, bare): (Vec<_>, Vec<_>) = ways.partition(|(_, route)| route.is_carried());
    let by = |(name, route): &(String, Route)| {
        let (name, route) = (name.clone(), route.clone());
        interfaces.iter().map(move |i| {
            candidate(format!("{name}%{}", i.name), route.clone().by_interface(i.index), None)
        })
    };
    let carried =
        carried.into_iter().map(|(name, route)| candidate(name.clone(), route.clone(), None));
    bare.into_iter().flat_map(by).chain(carried).take(max.max(1)).collect()
}

/// Adds each path to each mirror, the direct path first, up to `max` in all.
fn with_mirrors(mut own: Vec<Candidate>, mirrors: &[HttpUrl], max: usize) -> Vec<Candidate> {
    let (direct, relayed): (Vec<_>, Vec<_>) =
        own.iter().cloned().partition(|c| c.route.is_direct());
    let first = direct.into_iter().take(1).chain(relayed);
    let further: Vec<Candidate> = first
        .flat_map(|path| {
            let to = move |(i, mirror): (usize, &HttpUrl)| {
                let host = &mirror.destination().host;
                // Two mirrors may be on one host.
                let again = mirrors[..i].iter().filter(|m| m.destination().host == *host).count();
                let again = if again == 0 { String::new() } else { format!("#{}", again + 1) };
                let name = format!("{}@{host}{again}", path.name);
                candidate(name, path.route.clone(), Some(mirror.clone()))
            };
            mirrors.iter().enumerate().map(to).collect::<Vec<_>>()
        })
        .collect();
    let room = max.saturating_sub(own.len());
    own.extend(further.into_iter().take(room));
    own
}

/// The user's header fields; for a server that is not trusted only `User-Agent`.
fn fields(args: &WebArgs, is_trusted: bool) -> anyhow::Result<HeaderMap> {
    let mut fields = HeaderMap::new();
    let agent = args.user_agent.iter().map(|name| format!("User-Agent: {name}"));
    let given = args.header.iter().filter(|_| is_trusted).cloned();
    for text in agent.chain(given) {
        add_field(&mut fields, &text)?;
    }
    // They may be cookies and keys, which must never be printed.
    fields.values_mut().for_each(|value| value.set_sensitive(true));
    Ok(fields)
}

/// The least and the most bytes that a server may send ahead of a rate limit on one connection: with the least, five
/// paths sample 320 kB; the most, 6 MB, is what Linux grows its buffer to.
const MIN_BUFFER: usize = 1 << 16;
const MAX_BUFFER: usize = 6 << 20;

/// The receive buffer for a rate limit: as much as the limit lets through in 250 ms (`quarter`), so that one path alone
/// reaches the limit at any round trip up to that.
fn buffer_for(quarter: usize) -> usize {
    quarter.clamp(MIN_BUFFER, MAX_BUFFER)
}

/// How connections are made.
fn web(
    args: &Args,
    mesh: &Mesh,
    uplinks: Option<Uplinks>,
    note: &dyn Fn(String),
) -> anyhow::Result<HttpSettings> {
    let is_background = args.effort.background;
    let limit = args.effort.limit_rate.as_ref().and_then(RateTimetable::highest);
    let (paths, args) = (&args.paths, &args.web);
    let receive_buffer =
        limit.map(|limit| usize::try_from(limit.get() / 4).map_or(MAX_BUFFER, buffer_for));
    let socket = SocketOptions { receive_buffer, ..SocketOptions::default() };
    let deadline = args.connect_timeout;
    let options = DialOptions { deadline, socket, is_background, ..DialOptions::default() };
    let dialer = match mesh.dialer(&options) {
        Some(dialer) => bonds::lend(dialer, paths, uplinks.as_ref())?,
        None => Dialer::new(options),
    };
    // The links of bonds have accounts of their own.
    let dialer = match uplinks {
        Some(uplinks) => dialer.with_bookkeeper(Arc::new(Accounts::new(uplinks))),
        None => dialer,
    };
    let roots = TlsOptions { extra_roots: args.cacert.clone() };
    let tls = match TlsClient::new(&roots, args.version().protocols()) {
        Ok(tls) => Some(tls),
        Err(e) if !args.cacert.is_empty() => bail!("--cacert: {e}"),
        Err(e) => {
            note(format!("https cannot be fetched: {e}"));
            None
        }
    };
    let credentials = Arc::new(credentials(args, note)?);
    Ok(HttpSettings { dialer, tls, version: args.version(), credentials })
}
