//! Watches a file name continuously: nothing but the allowed contents may appear under it.

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, ReadFlags, WatchFlags},
};
use std::{
    fs,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The longest interval between two looks.
const BETWEEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The contents that may be seen under the final name.
#[derive(Clone, Debug)]
pub struct AllowedContents {
    /// The old content, if there was a file.
    pub old: Option<Vec<u8>>,
    /// The right contents; several for a file that changes on the server.
    pub right: Vec<Arc<Vec<u8>>>,
}

/// What the watch saw.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The number of looks.
    pub looks: u64,
    /// Descriptions of what must not happen, at most 20.
    pub wrong: Vec<String>,
}

/// A running watch.
pub struct FileWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Observations>>,
}

impl FileWatch {
    /// Watches `file`, whose directory exists.
    ///
    /// # Errors
    /// When inotify is not available.
    pub fn start(file: &Path, allowed: AllowedContents) -> anyhow::Result<Self> {
        let directory = file.parent().context("the file's path has no directory")?;
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        inotify::add_watch(&inotify, directory, flags)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (file, ended) = (file.to_owned(), Arc::clone(&stop));
        let mut watcher = Watcher::new(file, allowed);
        let thread = thread::spawn(move || watcher.run(&inotify, &ended).map(|()| watcher.seen));
        Ok(Self { stop, thread })
    }

    /// Looks a last time, ends the watch and returns what it saw.
    ///
    /// # Errors
    /// When the watch failed.
    pub fn end(self) -> anyhow::Result<Observations> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| anyhow::anyhow!("the watching thread panicked"))?
    }
}

struct Watcher {
    file: PathBuf,
    allowed: AllowedContents,
    seen: Observations,
    /// Whether the file has existed; then it may be replaced but not vanish.
    is_there: bool,
    /// The file at the last look: inode, length, time.
    last: Option<(u64, u64, i64, i64)>,
}

impl Watcher {
    fn new(file: PathBuf, allowed: AllowedContents) -> Self {
        let is_there = allowed.old.is_some();
        Self { file, allowed, seen: Observations::default(), is_there, last: None }
    }

    fn run(&mut self, inotify: &OwnedFd, ended: &AtomicBool) -> anyhow::Result<()> {
        loop {
            let last = ended.load(Ordering::SeqCst);
            self.events(inotify)?;
            self.check_file()?;
            if last {
                return Ok(());
            }
            let mut fds = [PollFd::new(inotify, PollFlags::IN)];
            match poll(&mut fds, Some(&BETWEEN)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Handles the events in the directory since the last time.
    fn events(&mut self, inotify: &OwnedFd) -> anyhow::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let name = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        loop {
            let event = match reader.next() {
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                event => event?,
            };
            let about = event.file_name().map(|n| n.to_string_lossy().into_owned());
            let about = about.unwrap_or_default();
            let touched = event.events();
            if about == name {
                self.check_file()?;
                if touched.intersects(ReadFlags::MODIFY | ReadFlags::DELETE | ReadFlags::MOVED_FROM)
                {
                    self.add_wrong(format!("{name} was altered in place or removed: {touched:?}"));
                }
            } else if !is_temporary(&about, &name) && touched.intersects(ReadFlags::CREATE) {
                self.add_wrong(format!("an unexpected file name is visible: {about}"));
            }
        }
    }

    fn add_wrong(&mut self, what: String) {
        // The first ones suffice; a watch of minutes must not fill the memory.
        if self.seen.wrong.len() < 20 {
            self.seen.wrong.push(what);
        }
    }

    fn check_file(&mut self) -> anyhow::Result<()> {
        self.seen.looks += 1;
        let about = match fs::metadata(&self.file) {
            Ok(about) => about,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if std::mem::take(&mut self.is_there) {
                    self.add_wrong("the existing file has disappeared".to_owned());
                }
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        };
        self.is_there = true;
        let now = Some((about.ino(), about.len(), about.mtime(), about.mtime_nsec()));
        if self.last == now {
            return Ok(());
        }
        self.last = now;
        let bytes = fs::read(&self.file)?;
        if !is_allowed(&self.allowed, &bytes) {
            self.add_wrong(format!("{} wrong bytes under the final name", bytes.len()));
        }
        Ok(())
    }
}

fn is_allowed(allowed: &AllowedContents, bytes: &[u8]) -> bool {
    let right = allowed.right.iter().any(|right| right.as_slice() == bytes);
    right || allowed.old.as_deref() == Some(bytes)
}

/// Whether a name is one of the hidden names that `get` uses beside the file.
pub fn is_temporary(name: &str, file: &str) -> bool {
    name.is_empty() || name.starts_with(&format!(".{file}.thalweg-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(act: impl FnOnce(&Path)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, "old").unwrap();
        let right = vec![Arc::new(b"right".to_vec())];
        let allowed = AllowedContents { old: Some(b"old".to_vec()), right };
        let watch = FileWatch::start(&file, allowed).unwrap();
        act(dir.path());
        let seen = watch.end().unwrap();
        assert!(seen.looks > 0);
        seen.wrong
    }

    #[test]
    fn a_right_file_that_is_renamed_into_place_is_accepted() {
        let wrong = watched(|dir| {
            fs::write(dir.join(".a.thalweg-part"), "right").unwrap();
            fs::rename(dir.join(".a.thalweg-part"), dir.join("a")).unwrap();
        });
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn changes_in_place_removals_and_other_names_are_detected() {
        let acts: [fn(&Path); 4] = [
            |dir| fs::write(dir.join("a"), "right").unwrap(),
            |dir| fs::remove_file(dir.join("a")).unwrap(),
            |dir| fs::write(dir.join("a.part"), "ri").unwrap(),
            |dir| {
                fs::write(dir.join(".a.thalweg-part"), "rig").unwrap();
                fs::rename(dir.join(".a.thalweg-part"), dir.join("a")).unwrap();
            },
        ];
        for act in acts {
            assert!(!watched(act).is_empty());
        }
    }
}
