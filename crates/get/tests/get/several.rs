//! Tests of several downloads in one call.

use crate::{
    Trial,
    server::{Server, Version},
};
use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{Mutex, atomic::AtomicUsize, atomic::Ordering},
};
use thalweg_base::job::Event;
use thalweg_get::{GetFailed, ManyOptions, ManySink, Outcome, Request, Stop, Tally, Target, many};
use thalweg_paths::url::HttpUrl;

#[derive(Default)]
struct Heard {
    running: AtomicUsize,
    most: AtomicUsize,
    done: Mutex<Vec<(usize, Outcome)>>,
}

impl ManySink for Heard {
    fn event(&self, _: usize, event: &Event) {
        match event {
            Event::Started { .. } => {
                let n = self.running.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(n, Ordering::SeqCst);
            }
            Event::Finished { .. } => _ = self.running.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }

    fn done(&self, download: usize, outcome: &Outcome) {
        self.done.lock().unwrap().push((download, outcome.clone()));
    }
}

const NONE: usize = usize::MAX;

fn how(parallel: usize, fail_early: bool) -> ManyOptions<'static> {
    let parallel = NonZeroUsize::new(parallel).unwrap();
    ManyOptions { parallel, fail_early, history: None }
}

/// The request of `trial`, changed to `/n` and the file `name`.
fn request(trial: &Trial, server: &Server, n: usize, name: &str) -> Request {
    let url = format!("http://{}/{n}", server.address);
    let mut request = trial.request.clone();
    request.url = HttpUrl::parse(&url).unwrap();
    request.target = Target::File(trial.dir.path().join(name));
    request
}

async fn run<I>(requests: I, how: &ManyOptions<'_>, heard: &Heard) -> Tally
where
    I: IntoIterator<Item = Result<Request, (String, GetFailed)>>,
{
    let (_wish, stop) = Stop::new();
    many(requests, how, heard, stop).await
}

/// A server without the path `/bad`, where `bad` is a number.
async fn server(version: &Version, bad: usize) -> Server {
    Server::start(version, move |ask, reply| {
        if ask.path == format!("/{bad}") {
            reply.status(404);
        }
    })
    .await
}

fn is(dir: &Path, name: &str, version: &Version) -> bool {
    std::fs::read(dir.join(name)).unwrap() == version.bytes
}

#[tokio::test]
async fn many_small_files_are_fetched_a_few_at_a_time_with_one_request_each() {
    let version = Version::new(1, 2001);
    let server = server(&version, NONE).await;
    let trial = Trial::new(&server, &[]);
    let requests = (0..100).map(|n| Ok(request(&trial, &server, n, &n.to_string())));
    let heard = Heard::default();
    let tally = run(requests, &how(4, false), &heard).await;
    assert_eq!((tally.done, tally.failed.len()), (100, 0), "{:?}", tally.failed);
    assert_eq!(tally.bytes.as_bytes(), 200_100);
    assert!((0..100).all(|n| is(trial.dir.path(), &n.to_string(), &version)));
    assert_eq!(trial.files().len(), 100, "nothing else is left");
    assert!(heard.most.load(Ordering::SeqCst) <= 4);
    assert_eq!(server.asks().len(), 100, "one question each");
    let mut done: Vec<_> = heard.done.lock().unwrap().iter().map(|(n, _)| *n).collect();
    done.sort_unstable();
    assert_eq!(done, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_later_of_two_requests_for_one_file_is_refused() {
    let version = Version::new(1, 2000);
    let server = server(&version, NONE).await;
    let trial = Trial::new(&server, &[]);
    let requests = [(1, "a"), (2, "./a"), (3, "b")];
    let requests = requests.map(|(n, name)| Ok(request(&trial, &server, n, name)));
    let tally = run(requests, &how(3, false), &Heard::default()).await;
    assert_eq!(tally.done, 2);
    let (url, failed) = &tally.failed[0];
    assert!(url.ends_with("/2"), "{url}");
    let message = failed.to_string();
    assert!(message.contains("download 1") && message.contains("download 2"), "{message}");
    assert_eq!(trial.files(), ["a", "b"]);
}

#[tokio::test]
async fn failures_are_reported_in_request_order_and_may_end_the_call() {
    let version = Version::new(1, 2000);
    let server = server(&version, 1).await;
    let trial = Trial::new(&server, &[]);
    let all = |n| Ok(request(&trial, &server, n, &n.to_string()));
    let tally = run((0..5).map(all), &how(1, false), &Heard::default()).await;
    assert_eq!((tally.done, tally.failed.len()), (4, 1));
    assert!(tally.failed[0].0.ends_with("/1"));
    let trial = Trial::new(&server, &[]);
    let all = |n| Ok(request(&trial, &server, n, &n.to_string()));
    let tally = run((0..5).map(all), &how(1, true), &Heard::default()).await;
    assert_eq!((tally.done, tally.failed.len()), (1, 1), "the others did not start");
    assert_eq!(trial.files(), ["0"]);
}

#[tokio::test]
async fn nothing_starts_after_a_stop() {
    let version = Version::new(1, 2000);
    let server = server(&version, NONE).await;
    let trial = Trial::new(&server, &[]);
    let (wish, stop) = Stop::new();
    wish.send_replace(true);
    let requests = (0..5).map(|n| Ok(request(&trial, &server, n, &n.to_string())));
    let tally = many(requests, &how(2, false), &Heard::default(), stop).await;
    assert_eq!((tally.done, tally.failed.len()), (0, 0));
    assert!(server.asks().is_empty() && trial.files().is_empty());
}

/// What is learned about a server holds for the rest of the call.
#[tokio::test]
async fn a_server_that_refuses_ranges_is_asked_for_them_twice() {
    let version = Version::new(1, 1000);
    let server = Server::start(&version, |ask, reply| {
        if !ask.ranges.is_empty() {
            reply.status(403);
        }
    })
    .await;
    let trial = Trial::new(&server, &[]).in_segments();
    let requests = (0..50).map(|i| Ok(request(&trial, &server, i, &format!("f{i}"))));
    let tally = run(requests, &how(1, false), &Heard::default()).await;
    assert_eq!((tally.done, tally.failed.len()), (50, 0));
    assert_eq!(server.asks().len(), 52);
}

#[tokio::test]
async fn a_status_is_doubted_once() {
    let version = Version::new(1, 1000);
    let server = Server::start(&version, |_, reply| reply.status(404)).await;
    let trial = Trial::new(&server, &[]).in_segments();
    let requests = (0..50).map(|i| Ok(request(&trial, &server, i, &format!("f{i}"))));
    let tally = run(requests, &how(1, false), &Heard::default()).await;
    assert_eq!((tally.done, tally.failed.len()), (0, 50));
    assert_eq!(server.asks().len(), 51);
}
