//! Tests of file names that servers choose, and of outputs instead of files.

use crate::{
    LENGTH, Trial,
    server::{Server, Step, Version},
};
use std::{
    io,
    sync::{Arc, Condvar, Mutex},
};
use thalweg_get::{GetError, Output, Target};

async fn named(version: &Version, disposition: &'static str) -> Server {
    Server::start(version, move |_, reply| {
        if !disposition.is_empty() {
            reply.set("content-disposition", disposition);
        }
    })
    .await
}

#[tokio::test]
async fn the_server_names_the_file_and_never_leaves_the_directory() {
    let version = Version::new(1, 1000);
    for (disposition, name) in [
        ("", "file.bin"),
        ("attachment; filename=report.pdf", "report.pdf"),
        ("attachment; filename=\"../../etc/passwd\"", "passwd"),
        ("attachment; filename*=UTF-8''%e2%82%ac.txt; filename=e.txt", "\u{20ac}.txt"),
    ] {
        let server = named(&version, disposition).await;
        let mut trial = Trial::new(&server, &[]);
        trial.request.target = Target::In(trial.dir.path().to_owned());
        let outcome = trial.run().await.unwrap();
        assert_eq!(trial.files(), [name], "{disposition}");
        assert_eq!(outcome.target, trial.dir.path().join(name));
    }
}

#[tokio::test]
async fn hostile_names_stay_inside_the_directory_and_visible() {
    let version = Version::new(1, 1000);
    for disposition in [
        "attachment; filename=\"..\"",
        "attachment; filename=\".bashrc\"",
        "attachment; filename=\"a\\\\..\\\\..\\\\b\"",
        "attachment; filename=\"/\"",
        "attachment; filename*=UTF-8''%2e%2e%2fx%00y",
        "attachment; filename=\"-rf\"",
    ] {
        let server = named(&version, disposition).await;
        let mut trial = Trial::new(&server, &[]);
        let inner = trial.dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        trial.request.target = Target::In(inner.clone());
        trial.run().await.unwrap();
        assert_eq!(trial.files(), ["inner"], "{disposition}");
        let names: Vec<_> =
            std::fs::read_dir(&inner).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 1, "{disposition}: {names:?}");
        let name = names[0].to_str().unwrap();
        assert!(!name.starts_with('.') && !name.contains(['\\', '\0']), "{disposition}: {name}");
    }
}

#[tokio::test]
async fn an_existing_file_is_not_replaced_under_a_name_that_the_server_chose() {
    let version = Version::new(1, 1000);
    let server = named(&version, "attachment; filename=a").await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.target = Target::In(trial.dir.path().to_owned());
    std::fs::write(trial.dir.path().join("a"), "mine").unwrap();
    let failed = trial.run().await.unwrap_err();
    assert!(matches!(failed.error, GetError::Exists(_)), "{failed}");
    assert_eq!(std::fs::read(trial.dir.path().join("a")).unwrap(), b"mine");
    std::fs::remove_file(trial.dir.path().join("a")).unwrap();
    std::os::unix::fs::symlink("/nowhere/b", trial.dir.path().join("a")).unwrap();
    let failed = trial.run().await.unwrap_err();
    assert!(matches!(failed.error, GetError::Exists(_)), "a link that leads away: {failed}");
}

/// An output in memory, which can be blocked and unblocked.
#[derive(Default)]
struct Pipe {
    got: Mutex<Vec<u8>>,
    shut: Mutex<bool>,
    opened: Condvar,
    /// Refuses writes beyond this many bytes.
    breaks_at: Option<usize>,
}

impl Output for Pipe {
    fn write(&self, data: &[u8]) -> io::Result<()> {
        let shut = self.shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        let mut got = self.got.lock().unwrap();
        if self.breaks_at.is_some_and(|n| got.len() + data.len() > n) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        got.extend_from_slice(data);
        Ok(())
    }
}

fn to(trial: &mut Trial, pipe: Pipe) -> Arc<Pipe> {
    let pipe = Arc::new(pipe);
    trial.request.target = Target::Output(Arc::clone(&pipe) as Arc<dyn Output>);
    pipe
}

#[tokio::test]
async fn an_output_receives_all_bytes_in_order_and_no_file_is_left() {
    let version = Version::new(1, LENGTH);
    let bytes = version.bytes.clone();
    let ranges = Server::honest(&version).await;
    let whole = Server::start(&version, move |_, reply| reply.whole(bytes.clone())).await;
    for server in [ranges, whole] {
        let mut trial = Trial::new(&server, &[]);
        let pipe = to(&mut trial, Pipe::default());
        let outcome = trial.run().await.unwrap();
        assert!(*pipe.got.lock().unwrap() == version.bytes, "wrong bytes");
        assert_eq!(outcome.length.as_bytes(), LENGTH as u64);
        assert!(trial.files().is_empty());
    }
}

#[tokio::test]
async fn with_a_digest_nothing_is_written_before_the_whole_is_verified() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let mut trial = Trial::new(&server, &[]);
    let right = format!("blake3:{}", blake3::hash(&version.bytes));
    let pipe = to(&mut trial, Pipe::default());
    trial.request.digests = vec![format!("blake3:{}", blake3::hash(b"x")).parse().unwrap()];
    trial.run().await.unwrap_err();
    assert!(pipe.got.lock().unwrap().is_empty());
    trial.request.digests = vec![right.parse().unwrap()];
    trial.run().await.unwrap();
    assert!(*pipe.got.lock().unwrap() == version.bytes, "wrong bytes");
}

#[tokio::test]
async fn a_slow_reader_delays_only_the_end() {
    let version = Version::new(1, LENGTH);
    let server = Server::honest(&version).await;
    let mut trial = Trial::new(&server, &[]).in_segments();
    let pipe = to(&mut trial, Pipe { shut: Mutex::new(true), ..Pipe::default() });
    let reader = async {
        // All bytes are fetched although none was read.
        crate::until(|| {
            let end = |r: &std::ops::Range<u64>| r.end == LENGTH as u64;
            server.segments().iter().any(end)
        })
        .await;
        assert!(pipe.got.lock().unwrap().is_empty());
        *pipe.shut.lock().unwrap() = false;
        pipe.opened.notify_all();
    };
    let (done, ()) = tokio::join!(trial.run(), reader);
    done.unwrap();
    assert!(*pipe.got.lock().unwrap() == version.bytes, "wrong bytes");
}

#[tokio::test]
async fn a_closed_output_ends_the_download() {
    let version = Version::new(1, LENGTH);
    let server = Server::start(&version, |ask, reply| {
        if !ask.is_probe() {
            reply.after_bytes(1_000_000, Step::Hang);
        }
    })
    .await;
    let mut trial = Trial::new(&server, &[]);
    to(&mut trial, Pipe { breaks_at: Some(100_000), ..Pipe::default() });
    let failed = trial.run().await.unwrap_err();
    assert!(matches!(failed.error, GetError::Output(_)), "{failed}");
}
