//! Which way a connection takes: races, and that nothing fails that works directly.

use crate::scene::{Origin, Scene, status};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use thalweg_base::log::Log;
use thalweg_net::Route;
use thalweg_paths::{
    chooser::{Candidates, Content, PathAttempt, PathChooser, PathRace, PathReport},
    url::HttpUrl,
};
use thalweg_proxy::ProxyEvent;
use thalweg_relay::{EgressPolicy, Relay, RelayConfig, parse_cidr};
use thalweg_wire::Destination;
use tokio::{net::TcpListener, task::JoinSet};

/// A chooser that always gives the same ways, and records what it learns.
#[derive(Default)]
pub struct FixedChooser {
    pub ways: Vec<PathAttempt>,
    pub told: Mutex<Vec<String>>,
    /// Connections by relays must be closed.
    pub revoked: AtomicBool,
    /// Relays are no longer chosen.
    pub only_directly: AtomicBool,
    /// The content of each connection.
    pub contents: Mutex<Vec<Content>>,
}

impl PathChooser for FixedChooser {
    fn choose(&self, _: &Destination, content: Content) -> PathRace {
        self.contents.lock().unwrap().push(content);
        if self.only_directly.load(Relaxed) {
            return PathRace::direct();
        }
        PathRace::with_direct(self.ways.clone())
    }

    fn may_go_on(&self, _: &Route) -> bool {
        !self.revoked.load(Relaxed)
    }

    fn candidates(&self, _: &HttpUrl) -> Candidates {
        let candidate = |way: &PathAttempt| thalweg_paths::candidates::Candidate {
            name: way.name.clone(),
            route: way.route.clone(),
            mirror: None,
        };
        Candidates { paths: self.ways.iter().map(candidate).collect(), priors: Vec::new() }
    }

    fn learn(&self, _: &Destination, _: Content, seen: PathReport<'_>) {
        let told = match seen {
            PathReport::Carried(observed) => format!("carried {}", observed.path),
            PathReport::Failed(path) => format!("failed {path}"),
            PathReport::Altered { path, .. } => format!("altered {path}"),
        };
        self.told.lock().unwrap().push(told);
    }
}

pub fn way(name: &str, relay: SocketAddr, after: u64) -> PathAttempt {
    let route = Route::through([relay.into()]).unwrap();
    PathAttempt { name: name.to_owned(), route, after: Duration::from_millis(after), ahead: None }
}

pub fn direct(after: u64) -> PathAttempt {
    PathAttempt { after: Duration::from_millis(after), ..PathAttempt::direct() }
}

/// A plain relay that may go anywhere on this host.
pub async fn relay(tasks: &mut JoinSet<()>) -> SocketAddr {
    let mut config = RelayConfig::new("127.0.0.1:0".parse().unwrap());
    let ports = vec!["1024-65535".parse().unwrap()];
    config.egress = EgressPolicy::new(vec![parse_cidr("127.0.0.0/8").unwrap()], ports);
    let relay = Relay::bind(config, Log::to_queue().0).await.unwrap();
    let at = relay.local_addr().unwrap();
    tasks.spawn(async move { _ = relay.run(std::future::pending()).await });
    at
}

async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// The path that a tunnel to `origin` took, and what the chooser learnt.
async fn path(ways: Vec<PathAttempt>) -> (String, Vec<String>) {
    let chooser = Arc::new(FixedChooser { ways, ..FixedChooser::default() });
    let (scene, origin) = (Scene::choosing(chooser.clone()).await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at)).await;
    assert_eq!(status(&program.head().await), 200);
    let mut at = origin.accept().await;
    program.end().await;
    at.end().await;
    assert_eq!((program.rest().await, at.rest().await), (Vec::new(), Vec::new()));
    let (_, events) = scene.end().await;
    let [ProxyEvent::Tunnel { path, .. }] = &events[..] else { panic!("{events:?}") };
    let told = chooser.told.lock().unwrap().clone();
    (path.clone(), told)
}

#[tokio::test]
async fn the_first_established_way_carries_the_tunnel() {
    let mut tasks = JoinSet::new();
    let relay = relay(&mut tasks).await;
    let never = 600_000;
    assert_eq!(path(vec![direct(0), way("fra", relay, never)]).await.0, "direct");
    assert_eq!(path(vec![way("fra", relay, 0), direct(never)]).await.0, "fra");
}

#[tokio::test]
async fn a_tunnel_to_a_port_of_no_encrypted_protocol_may_be_readable() {
    let chooser = Arc::new(FixedChooser::default());
    let (scene, origin) = (Scene::choosing(chooser.clone()).await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.at)).await;
    assert_eq!(status(&program.head().await), 200);
    drop(program);
    scene.end().await;
    assert_eq!(*chooser.contents.lock().unwrap(), [Content::Unknown]);
}

#[tokio::test]
async fn the_direct_way_is_tried_at_once_when_the_detour_fails() {
    let never = 600_000;
    let (path, told) = path(vec![way("dead", nobody().await, 0), direct(never)]).await;
    assert_eq!((path.as_str(), &told[..]), ("direct", &["failed dead".to_owned()][..]));
}

#[tokio::test]
async fn a_refusal_by_the_destination_is_told_at_once() {
    let mut tasks = JoinSet::new();
    let relay = relay(&mut tasks).await;
    let ways = vec![direct(0), way("fra", relay, 600_000)];
    let scene = Scene::choosing(Arc::new(FixedChooser { ways, ..FixedChooser::default() })).await;
    let mut program = scene.program().await;
    let closed = nobody().await;
    program.send(format!("CONNECT {closed} HTTP/1.1\r\nHost: {closed}\r\n\r\n")).await;
    assert_eq!(status(&program.head().await), 502);
}
