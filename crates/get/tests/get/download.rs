//! Builds the downloads of these tests and of those over TLS.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_base::{
    budget::Budget,
    job::{Event, EventSink},
};
use thalweg_get::{HttpSettings, Request, Target};
use thalweg_net::Route;
use thalweg_part::Batch;
use thalweg_paths::candidates::Candidate;
use thalweg_paths::url::HttpUrl;
use thalweg_plan::selection::Config;

/// All events of a download.
#[derive(Default)]
pub struct Events(pub Mutex<Vec<Event>>);

impl EventSink for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

pub fn direct() -> Candidate {
    Candidate { name: "direct".into(), route: Route::direct(), mirror: None }
}

/// The path through this relay, named by its address.
pub fn detour(relay: SocketAddr) -> Candidate {
    let route = Route::through([relay.into()]).unwrap();
    Candidate { name: relay.to_string(), route, mirror: None }
}

/// A request with sampling however small the file is; everything else has its default.
pub fn request(url: &str, file: PathBuf, paths: Vec<Candidate>, web: HttpSettings) -> Request {
    Request {
        url: HttpUrl::parse(url).unwrap(),
        target: Target::File(file),
        paths,
        fields: Default::default(),
        digests: Vec::new(),
        pieces: None,
        selection: Config { small: 0, ..Config::default() },
        priors: Vec::new(),
        web,
        limit: None,
        batch: Batch::default(),
        publisher: Arc::default(),
        kept: Arc::default(),
        budget: Arc::new(Budget::new()),
        adopt: false,
        expected_length: None,
        thrift: None,
        patience: Duration::from_secs(20),
    }
}
